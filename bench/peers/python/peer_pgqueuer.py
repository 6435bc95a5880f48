import json

import asyncpg
from pgqueuer import AsyncpgDriver, AsyncpgPoolDriver, QueueManager, Queries

from measure import Peer, key, payload

ENTRYPOINT = "noop"
BATCH_SIZE = 500


def encoded(n):
    return json.dumps(payload(n), separators=(",", ":")).encode()


class Pgqueuer(Peer):
    name = "pgqueuer"
    unfinished = "select count(*) from pgqueuer"

    async def open(self, url):
        self.url = url
        self.pool = await asyncpg.create_pool(url, min_size=10, max_size=20)
        self.queries = Queries(AsyncpgPoolDriver(self.pool))
        await self.queries.install()

    async def enqueue(self, n):
        await self.queries.enqueue(ENTRYPOINT, encoded(n), dedupe_key=key(n))

    async def enqueue_batch(self, numbers):
        count = len(numbers)
        await self.queries.enqueue(
            [ENTRYPOINT] * count,
            [encoded(n) for n in numbers],
            [0] * count,
            dedupe_key=[key(n) for n in numbers],
        )

    async def work(self, started):
        # Its own connection, as its documentation has it for a worker.
        manager = QueueManager(Queries(AsyncpgDriver(await asyncpg.connect(self.url))))

        @manager.entrypoint(ENTRYPOINT)
        async def noop(job):
            started(json.loads(job.payload)["n"])

        await manager.run(batch_size=BATCH_SIZE)
