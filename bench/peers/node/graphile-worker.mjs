import { createRequire } from "node:module";
import { Logger, makeWorkerUtils, run } from "graphile-worker";
import { key, payload } from "./measure.mjs";

const { version } = createRequire(import.meta.url)("graphile-worker/package.json");

export function graphileWorker() {
  let utils;
  let preset;
  return {
    name: "graphile-worker",
    version,
    unfinished: "select count(*) from graphile_worker.jobs",
    async open(url) {
      const logger = new Logger(() => (level, message) => level === "error" && console.error(message));
      preset = {
        worker: {
          connectionString: url,
          maxPoolSize: 30,
          concurrentJobs: 24,
          localQueue: { size: 500 },
          completeJobBatchDelay: 0,
          logger,
        },
      };
      utils = await makeWorkerUtils({ preset });
      await utils.migrate();
    },
    enqueue: (n) => utils.addJob("noop", payload(n), { jobKey: key(n) }),
    enqueueBatch: (numbers) =>
      utils.addJobs(numbers.map((n) => ({ identifier: "noop", payload: payload(n), jobKey: key(n) }))),
    work: (started) =>
      run({
        preset,
        noHandleSignals: true,
        parsedCronItems: [],
        taskList: { noop: async ({ n }) => started(n) },
      }),
  };
}
