// node run.mjs <peer> <row> <postgres url> <messages>

import { graphileWorker } from "./graphile-worker.mjs";
import { pgBoss } from "./pg-boss.mjs";
import { measure } from "./measure.mjs";

const PEERS = { "graphile-worker": graphileWorker, "pg-boss": pgBoss };

const [peer, row, url, messages] = process.argv.slice(2);
if (!PEERS[peer] || !messages) {
  console.error(`usage: node run.mjs ${Object.keys(PEERS).join("|")} <row> <postgres url> <messages>`);
  process.exit(2);
}
await measure(PEERS[peer](), row, url, Number(messages));
