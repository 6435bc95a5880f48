// What is measured, and how: the same four rows for every peer. A peer is an object with
//   name, version
//   open(url)              migrations and connections
//   enqueue(n)             one message, durable when the promise resolves
//   enqueueBatch(numbers)  the same for several in one call
//   work(started)          starts the worker; its handler only calls started(n)
//   unfinished             SQL that counts the messages in its tables that are not finished

import pg from "pg";

const BATCH = 500;
const CALLERS = 8;
const INTERVAL_MS = 5;
const WARM_UP = 100;
const DRAIN_DEADLINE_MS = 120_000;
const LATENCY_DEADLINE_MS = 10_000;

const FRAME = JSON.stringify({ n: 0, note: "" }).length - 1;
const FILLER = "x".repeat(256);

/** 256 bytes of JSON that hold the message's number. */
export function payload(n) {
  return { n, note: FILLER.slice(0, 256 - FRAME - String(n).length) };
}

export function key(n) {
  return `0192f7a0-0000-7000-8000-${String(n).padStart(12, "0")}`;
}

let database;

/** How many messages are not finished, as the database has it. */
async function left(peer) {
  return Number((await database.query(peer.unfinished)).rows[0].count);
}

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const rate = (count, start) => Math.round((count / (performance.now() - start)) * 1000);

/** Waits until `done()`, and answers whether it came to that before the deadline. */
async function until(done, ms) {
  const end = performance.now() + ms;
  while (!(await done())) {
    if (performance.now() > end) return false;
    await pause(2);
  }
  return true;
}

function* batches(count) {
  for (let first = 0; first < count; first += BATCH) {
    const length = Math.min(BATCH, count - first);
    yield Array.from({ length }, (_, i) => first + i);
  }
}

async function single(peer, count) {
  let next = 0;
  const start = performance.now();
  const caller = async () => {
    while (next < count) await peer.enqueue(next++);
  };
  await Promise.all(Array.from({ length: CALLERS }, caller));
  const value = rate(count, start);
  return { value, unit: "msg/s", ...(await kept(peer, count)) };
}

async function batch(peer, count) {
  const start = performance.now();
  for (const numbers of batches(count)) await peer.enqueueBatch(numbers);
  const value = rate(count, start);
  return { value, unit: "msg/s", ...(await kept(peer, count)) };
}

/** A rate counts only if everything is in the tables. */
async function kept(peer, count) {
  const kept = await left(peer);
  return kept === count ? {} : { error: `${kept} of ${count} messages are in the tables` };
}

async function drain(peer, count) {
  for (const numbers of batches(count)) await peer.enqueueBatch(numbers);
  // A table that grew within seconds has no statistics yet, and would be read by a plan that never occurs in operation.
  await database.query("analyze");
  const seen = new Uint8Array(count);
  let distinct = 0;
  let again = 0;
  const start = performance.now();
  await peer.work((n) => {
    if (seen[n]++) again++;
    else distinct++;
  });
  // The handler's last run is not the end: the result of it has to be in the database, too.
  let asked = start;
  const finished = await until(async () => {
    if (distinct < count) return false;
    asked = performance.now();
    return (await left(peer)) === 0;
  }, DRAIN_DEADLINE_MS);
  if (!finished) {
    const rest = await left(peer);
    const error = `after ${DRAIN_DEADLINE_MS / 1000} s ${distinct} of ${count} were handled, ${rest} not finished`;
    return { error };
  }
  const value = Math.round((count / (asked - start)) * 1000);
  return { value, unit: "msg/s", ...(again ? { handled_again: again } : {}) };
}

async function latency(peer, count) {
  const total = WARM_UP + count;
  const called = new Float64Array(total);
  const took = new Float64Array(total).fill(-1);
  let handled = 0;
  await peer.work((n) => {
    if (took[n] >= 0) return;
    took[n] = performance.now() - called[n];
    handled++;
  });
  const calls = [];
  const paced = async (from, to) => {
    const start = performance.now();
    for (let n = from; n < to; n++) {
      const due = start + (n - from) * INTERVAL_MS;
      while (performance.now() < due) await pause(1);
      called[n] = performance.now();
      calls.push(peer.enqueue(n));
    }
    await Promise.all(calls);
  };
  await paced(0, WARM_UP);
  await until(() => handled >= WARM_UP, LATENCY_DEADLINE_MS);
  await paced(WARM_UP, total);
  if (!(await until(() => handled === total, LATENCY_DEADLINE_MS))) {
    const missing = took.filter((ms) => ms < 0).length;
    return { error: `${missing} of ${total} were not handled ${LATENCY_DEADLINE_MS / 1000} s after the last enqueue` };
  }
  const sorted = took.slice(WARM_UP).sort();
  const at = (q) => Math.round(sorted[Math.min(count - 1, Math.floor(count * q))] * 100) / 100;
  return { p50_ms: at(0.5), p99_ms: at(0.99) };
}

const ROWS = { "enqueue-single-8": single, "enqueue-batch-500": batch, drain, "latency-200": latency };

/** Measures one row and prints it; a failure is a row, too. */
export async function measure(peer, row, url, count) {
  const head = { row, peer: peer.name, version: peer.version, messages: count };
  let result;
  try {
    database = new pg.Pool({ connectionString: url, max: 1 });
    await peer.open(url);
    result = await ROWS[row](peer, count);
  } catch (error) {
    result = { error: String(error?.message ?? error) };
  }
  if (result.error) delete result.value;
  const line = JSON.stringify({ ...head, ...result });
  // Workers and pools would keep the process alive, and some of them take seconds to stop.
  process.stdout.write(`${line}\n`, () => process.exit(0));
}
