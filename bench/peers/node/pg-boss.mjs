import { createRequire } from "node:module";
import PgBoss from "pg-boss";
import { counter, key, payload } from "./measure.mjs";

const { version } = createRequire(import.meta.url)("pg-boss/package.json");
const QUEUE = "bench";
const WORKERS = 4;

export function pgBoss() {
  let boss;
  return {
    name: "pg-boss",
    version,
    async open(url) {
      boss = new PgBoss({ connectionString: url, max: 20, supervise: false, schedule: false });
      boss.on("error", (error) => console.error(error));
      await boss.start();
      await boss.createQueue(QUEUE);
      this.left = counter(url, `select count(*) from pgboss.job where name = '${QUEUE}' and state < 'completed'`);
    },
    enqueue: (n) => boss.send(QUEUE, payload(n), { id: key(n) }),
    enqueueBatch: (numbers) =>
      boss.insert(numbers.map((n) => ({ id: key(n), name: QUEUE, data: payload(n) }))),
    async work(started) {
      const handler = async (jobs) => jobs.forEach((job) => started(job.data.n));
      // Half a second is the shortest poll it allows; a worker that found something asks again at once.
      const options = { batchSize: 1000, pollingIntervalSeconds: 0.5 };
      for (let i = 0; i < WORKERS; i++) await boss.work(QUEUE, options, handler);
    },
  };
}
