import { createRequire } from "node:module";
import PgBoss from "pg-boss";
import { key, payload } from "./measure.mjs";

const { version } = createRequire(import.meta.url)("pg-boss/package.json");
const QUEUE = "bench";
const WORKERS = 4;

export function pgBoss() {
  let boss;
  return {
    name: "pg-boss",
    version,
    unfinished: `select count(*) from pgboss.job where name = '${QUEUE}' and state < 'completed'`,
    async open(url) {
      boss = new PgBoss({ connectionString: url, max: 20, supervise: false, schedule: false });
      boss.on("error", (error) => console.error(error));
      await boss.start();
      await boss.createQueue(QUEUE);
    },
    enqueue: (n) => boss.send(QUEUE, payload(n), { id: key(n) }),
    enqueueBatch: (numbers) =>
      boss.insert(numbers.map((n) => ({ id: key(n), name: QUEUE, data: payload(n) }))),
    async work(started) {
      const handler = async (jobs) => jobs.forEach((job) => started(job.data.n));
      // Half a second is the shortest interval it allows between two fetches of a worker, so the size of the batch
      // limits the rate.
      const options = { batchSize: 5000, pollingIntervalSeconds: 0.5 };
      for (let i = 0; i < WORKERS; i++) await boss.work(QUEUE, options, handler);
    },
  };
}
