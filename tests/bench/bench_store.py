"""What the store costs: commits, bulk, reading back, a neighbour process, a follower process.

Run: python tests/bench/bench_store.py [asyncio|trio]

Bars: a commit beside a saturating process p99 <= 50 ms; a follower in another process p50 <= 5 ms.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

import anyio

sys.path.insert(0, str(Path(__file__).parents[1]))

from capsule_runtime.core.chain import Row
from capsule_runtime.errors import StoreError
from capsule_runtime.host.log_tail import LogTail
from capsule_runtime.host.store import Store, open_store
from support.stores import begin, child, frames, run_id

COMMITS = 2000
NEIGHBOUR_COMMITS = 300
FOLLOWED_COMMITS = 400
BLOCK_FRAMES = 800
BLOCK = b'{"seq":1000000,"prev":999999,"type":"text","text":"some words","final":false}\n' * 800
BULK_SECONDS = 3.0
RUNS = 200


async def main() -> None:
    with tempfile.TemporaryDirectory(prefix="bench-store-") as directory:
        report("fdatasync of a 4 KiB append", fdatasync_times(Path(directory)))
        async with open_store(Path(directory) / "state") as store:
            report("1-row commit", await commit_times(store, await begin(store, 1), COMMITS))
            report(f"{RUNS} runs, a row each, until all is on disk", await group_times(store))
            rate = await bulk_rate(store, await begin(store, 2))
            say(f"bulk, blocks of {BLOCK_FRAMES}", f"{rate / 1e3:8.0f} k frames/s")
            say("read back, verified", f"{read_rate(store) / 1e3:8.0f} k frames/s")
            report("seek and read one row", read_times(store))
            report("commit beside a saturating process (bar p99 50)", await neighbour_times(store))
            report("follower in another process (bar p50 5)", await follower_times(store))


def fdatasync_times(directory: Path) -> list[float]:
    fd, times = os.open(directory / "append", os.O_WRONLY | os.O_CREAT), list[float]()
    for _ in range(500):
        start = time.perf_counter()
        os.write(fd, bytes(4096))
        os.fdatasync(fd)
        times.append(time.perf_counter() - start)
    os.close(fd)
    return times


async def commit_times(store: Store, tail: LogTail, count: int) -> list[float]:
    times: list[float] = []
    for _ in range(count):
        row = frames(tail.next)
        start = time.perf_counter()
        await store.commit(tail, [row])
        times.append(time.perf_counter() - start)
    return times


async def group_times(store: Store) -> list[float]:
    tails = [await begin(store, number) for number in range(1000, 1000 + RUNS)]
    times: list[float] = []
    for _ in range(50):
        start = time.perf_counter()
        for tail in tails[1:]:
            store.append(tail, [frames(tail.next)], None, expect_none)
        await store.commit(tails[0], [frames(tails[0].next)])
        times.append(time.perf_counter() - start)
    return times


async def bulk_rate(store: Store, tail: LogTail) -> float:
    room, start, written = anyio.Semaphore(4), time.perf_counter(), 0

    def done(error: StoreError | None) -> None:
        nonlocal written
        expect_none(error)
        written += BLOCK_FRAMES
        room.release()

    while time.perf_counter() - start < BULK_SECONDS:
        await room.acquire()
        last = tail.next + BLOCK_FRAMES - 1
        store.append(tail, [Row(tail.next, last, BLOCK)], None, done)
    return written / (time.perf_counter() - start)


def read_rate(store: Store) -> float:
    start, seen = time.perf_counter(), 0
    while (rows := store.read(run_id(2), seen)) and seen < 2_000_000:
        seen = rows[-1].last
    return seen / (time.perf_counter() - start)


def read_times(store: Store) -> list[float]:
    times: list[float] = []
    for after in range(1, 1001):
        start = time.perf_counter()
        store.read(run_id(1), after, limit_rows=1)
        times.append(time.perf_counter() - start)
    return times


async def neighbour_times(store: Store) -> list[float]:
    tail = await store.claim(run_id(1))
    times: list[float] = []
    with child("flood", store.state, "3") as neighbour:
        neighbour.hear()
        for _ in range(NEIGHBOUR_COMMITS):
            times += await commit_times(store, tail, 1)
            await anyio.sleep(0.005)
    return times


async def follower_times(store: Store) -> list[float]:
    tail = await begin(store, 4)
    times: list[float] = []
    with child("follow", store.state, "4") as follower:
        follower.hear()
        follower.hear()
        for _ in range(FOLLOWED_COMMITS):
            start = time.monotonic()
            await store.commit(tail, [frames(tail.next)])
            times.append(float(follower.hear().split()[1]) - start)
            await anyio.sleep(0.005)
    return times


def expect_none(error: StoreError | None) -> None:
    if error is not None:
        raise error


def report(name: str, times: list[float]) -> None:
    times.sort()
    p50, p99 = (times[int(len(times) * part)] * 1e3 for part in (0.5, 0.99))
    say(name, f"p50 {p50:7.3f}  p99 {p99:7.3f}  max {times[-1] * 1e3:7.3f} ms")


def say(name: str, value: str) -> None:
    sys.stdout.write(f"{name:55} {value}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    anyio.run(main, backend=sys.argv[1] if len(sys.argv) > 1 else "asyncio")
