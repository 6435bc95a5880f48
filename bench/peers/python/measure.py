"""What is measured, and how: the same four rows for every peer."""

import asyncio
import json
import os
import sys
import time
from importlib.metadata import version

import asyncpg

BATCH = 500
CALLERS = 8
INTERVAL = 0.005
WARM_UP = 100
DRAIN_DEADLINE = 120.0
LATENCY_DEADLINE = 10.0

FRAME = len(json.dumps({"n": 0, "note": ""}, separators=(",", ":"))) - 1
FILLER = "x" * 256


def payload(n):
    """256 bytes of JSON that hold the message's number."""
    return {"n": n, "note": FILLER[: 256 - FRAME - len(str(n))]}


def key(n):
    return f"0192f7a0-0000-7000-8000-{n:012}"


class Peer:
    """What a peer has to offer."""

    name = ""
    """That of its package."""

    unfinished = ""
    """SQL that counts the messages in its tables that are not finished."""

    database = None
    """A connection of our own, to look into its tables with."""

    async def open(self, url):
        """Makes the tables and the connections."""
        raise NotImplementedError

    async def enqueue(self, n):
        """One message, durable when this returns."""
        raise NotImplementedError

    async def enqueue_batch(self, numbers):
        """The same for several in one call."""
        raise NotImplementedError

    async def work(self, started):
        """Runs the worker until it is cancelled; its handler only calls `started(n)`."""
        raise NotImplementedError

    async def left(self):
        return await self.database.fetchval(self.unfinished)


def batches(count):
    for first in range(0, count, BATCH):
        yield range(first, min(first + BATCH, count))


async def until(done, seconds, worker=None):
    """Waits until `done()`, and answers whether it came to that before the deadline."""
    end = time.perf_counter() + seconds
    while not await done():
        if worker is not None and worker.done():
            # Raises what ended it.
            worker.result()
            raise RuntimeError("the worker ended by itself")
        if time.perf_counter() > end:
            return False
        await asyncio.sleep(0.002)
    return True


async def kept(peer, count, value):
    """A rate counts only if everything is in the tables."""
    left = await peer.left()
    if left != count:
        return {"error": f"{left} of {count} messages are in the tables"}
    return {"value": round(value), "unit": "msg/s"}


async def single(peer, count):
    numbers = iter(range(count))

    async def caller():
        for n in numbers:
            await peer.enqueue(n)

    start = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(CALLERS)))
    return await kept(peer, count, count / (time.perf_counter() - start))


async def batch(peer, count):
    start = time.perf_counter()
    for numbers in batches(count):
        await peer.enqueue_batch(numbers)
    return await kept(peer, count, count / (time.perf_counter() - start))


async def drain(peer, count):
    for numbers in batches(count):
        await peer.enqueue_batch(numbers)
    # A table that grew within seconds has no statistics yet, and would be read by a plan that never occurs in
    # operation.
    await peer.database.execute("analyze")
    seen = bytearray(count)
    distinct = again = 0

    def started(n):
        nonlocal distinct, again
        if seen[n]:
            again += 1
        else:
            seen[n] = 1
            distinct += 1

    asked = start = time.perf_counter()

    # The handler's last run is not the end: the result of it has to be in the database, too.
    async def done():
        nonlocal asked
        if distinct < count:
            return False
        asked = time.perf_counter()
        return await peer.left() == 0

    worker = asyncio.create_task(peer.work(started))
    if not await until(done, DRAIN_DEADLINE, worker):
        left = await peer.left()
        text = f"after {DRAIN_DEADLINE:.0f} s {distinct} of {count} were handled, {left} not finished"
        return {"error": text}
    row = {"value": round(count / (asked - start)), "unit": "msg/s"}
    return row | ({"handled_again": again} if again else {})


async def latency(peer, count):
    total = WARM_UP + count
    called = [0.0] * total
    took = [None] * total
    handled = 0

    def started(n):
        nonlocal handled
        if took[n] is None:
            took[n] = time.perf_counter() - called[n]
            handled += 1

    worker = asyncio.create_task(peer.work(started))

    async def paced(first, last):
        calls = []
        start = time.perf_counter()
        for n in range(first, last):
            due = start + (n - first) * INTERVAL
            while (wait := due - time.perf_counter()) > 0:
                await asyncio.sleep(wait)
            called[n] = time.perf_counter()
            calls.append(asyncio.create_task(peer.enqueue(n)))
        await asyncio.gather(*calls)

    async def warm():
        return handled >= WARM_UP

    async def all_handled():
        return handled == total

    await paced(0, WARM_UP)
    await until(warm, LATENCY_DEADLINE, worker)
    await paced(WARM_UP, total)
    if not await until(all_handled, LATENCY_DEADLINE, worker):
        text = f"{total - handled} of {total} were not handled {LATENCY_DEADLINE:.0f} s after the last enqueue"
        return {"error": text}
    ordered = sorted(took[WARM_UP:])

    def at(share):
        return round(ordered[min(count - 1, int(count * share))] * 1000, 2)

    return {"p50_ms": at(0.5), "p99_ms": at(0.99)}


ROWS = {"enqueue-single-8": single, "enqueue-batch-500": batch, "drain": drain, "latency-200": latency}


async def measure(peer, row, url, count):
    """Measures one row and prints it; a failure is a row, too."""
    head = {"row": row, "peer": peer.name, "version": version(peer.name), "messages": count}
    try:
        peer.database = await asyncpg.connect(url)
        await peer.open(url)
        result = await ROWS[row](peer, count)
    except Exception as error:
        result = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(head | result), flush=True)
    sys.stderr.flush()
    # Workers and pools would keep the process alive, and some of them take seconds to stop.
    os._exit(0)
