"""Two hundred runs under one supervisor: memory of each, idle CPU, and the stop of all.

Run: python tests/bench/bench_many.py [asyncio|trio] [RUNS]

Memory is PSS, a shared page counted in parts, of the supervisor and of warden and buriers; what the
harnesses take is theirs. The harnesses, each a `cat` of its task, wait for their stdin to end, and
another process streams into their pipes.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import anyio

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.bench_latency import CAPSULE, LOADER, start_all, stdout_of
from capsule_runtime.active_run import ActiveRun
from capsule_runtime.core.log import Record
from capsule_runtime.supervisor import Supervisor, open_supervisor

RUNS = 200
PER_SECOND = 50
STREAM_SECONDS = 6.0
IDLE_SECONDS = 10.0
SETTLE_SECONDS = 2.0
REST_SECONDS = 20.0
"""How long nobody has said anything when the idle processor time is taken."""
POLITE = r"""
name = "polite"
[workdir]
mode = "rw"
[harness]
driver = "jsonl"
command = ["sh", "-c", '''
while read line; do
  case $line in *interrupt*) echo '{"type":"turn-end","result":"stopped"}'; exit;; esac
done''']
"""

BARE = """
import asyncio, time
async def main():
    before = time.process_time()
    for _ in range(35):
        await asyncio.sleep(1)
    print((time.process_time() - before) / 35)
asyncio.run(main())
"""
"""A program that only wakes once a second: what a machine takes for that, as loaded as it is."""

_PSS = re.compile(r"^Pss:\s*(\d+) kB", re.MULTILINE)


@dataclass(frozen=True)
class Weight:
    """PSS in KiB of the supervisor, and of the processes that watch for it."""

    supervisor: float
    watchers: float

    def per_run(self, empty: Weight, runs: int) -> str:
        """Return what each of *runs* adds to *empty*."""
        own = (self.supervisor - empty.supervisor) / runs
        all = own + (self.watchers - empty.watchers) / runs
        return f"supervisor {own:.0f} KiB each, with the burier {all:.0f} KiB"


def pss_kib(pid: int) -> int:
    found = _PSS.search(Path(f"/proc/{pid}/smaps_rollup").read_text())
    assert found is not None
    return int(found[1])


def cpu_seconds(pids: list[int]) -> float:
    """Return the time that *pids* spent on a CPU, which the scheduler counts in nanoseconds."""
    tasks = [task for pid in pids for task in Path(f"/proc/{pid}/task").iterdir()]
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


async def watchers_of(runs: list[ActiveRun]) -> list[int]:
    """Return the warden and the buriers of *runs*."""
    harnesses = [int((await stdout_of(run)).split("/")[2]) for run in runs]
    buriers = {parent_of(pid) for pid in harnesses}
    return [*{parent_of(pid) for pid in buriers}, *buriers]


def weigh(watchers: list[int]) -> Weight:
    return Weight(pss_kib(os.getpid()), sum(map(pss_kib, watchers)))


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


async def follow(run: ActiveRun) -> None:
    async for _ in run.frames():
        pass


async def stream(supervisor: Supervisor, folder: Path, runs: int, empty: Weight) -> None:
    """Stream to *runs* runs, each with a reader of its frames, and weigh in the midst of it."""
    started = await start_all(supervisor, folder, runs)
    watchers = await watchers_of(started)
    pipes = [await stdout_of(run) for run in started]
    figures = [str(PER_SECOND), str(STREAM_SECONDS), "0", "0"]
    async with anyio.create_task_group() as tasks:
        await anyio.sleep(SETTLE_SECONDS)
        own = [os.getpid()]
        async with await anyio.open_process([sys.executable, "-c", BARE], stderr=None) as bare:
            assert bare.stdout is not None
            await anyio.sleep(REST_SECONDS)
            # To read the figures of so many takes time too: it must not be part of ours.
            before = cpu_seconds(watchers) + cpu_seconds(own)
            await anyio.sleep(IDLE_SECONDS)
            idle = (cpu_seconds(own) + cpu_seconds(watchers) - before) / IDLE_SECONDS
            told = float(await bare.stdout.receive())
        say(f"idle CPU: {idle:.3%} of one; a bare loop beside it: {told:.3%}")
        say(f"idle: {weigh(watchers).per_run(empty, runs)}")
        for run in started:
            tasks.start_soon(follow, run)
        tasks.start_soon(anyio.run_process, [sys.executable, "-c", LOADER, *figures, *pipes])
        weights: list[Weight] = []
        for _ in range(3):
            await anyio.sleep(STREAM_SECONDS / 4)
            weights.append(weigh(watchers))
        heaviest = max(weights, key=lambda weight: weight.supervisor)
        say(f"streaming {PER_SECOND}/s each: {heaviest.per_run(empty, runs)}")


def seconds(at: str) -> float:
    return datetime.fromisoformat(at).timestamp()


def slowest(records: list[Record]) -> float:
    """Return how long the slowest run took from its stop to its recorded end, in seconds."""
    took = [seconds(it.ended.at) - seconds(it.stop.at) for it in records if it.ended and it.stop]
    assert len(took) == len(records)
    return max(took)


async def close_all(folder: Path, runs: int, capsule: str) -> None:
    """Close a supervisor of *runs* runs of *capsule*."""
    (folder / "capsule.toml").write_text(capsule)
    async with open_supervisor(folder / "state") as supervisor:
        started = await start_all(supervisor, folder, runs)
        await watchers_of(started)
        began = anyio.current_time()
    took = anyio.current_time() - began
    records = [await run.record() for run in started]
    what = "that leave when asked" if capsule == POLITE else "that do not (their grace is 4 s)"
    say(f"closing over {runs} runs {what}: {took:.2f} s; slowest run {slowest(records):.2f} s")


async def kill_all(folder: Path, runs: int) -> None:
    """Kill *runs* runs at once."""
    async with open_supervisor(folder / "state") as supervisor:
        started = await start_all(supervisor, folder, runs)
        await watchers_of(started)
        began = anyio.current_time()
        async with anyio.create_task_group() as tasks:
            for run in started:
                tasks.start_soon(run.kill)
        took = anyio.current_time() - began
        records = [await run.record() for run in started]
    say(f"killing {runs} runs: {took:.2f} s; slowest run {slowest(records):.2f} s")


async def measure(runs: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "capsule.toml").write_text(CAPSULE)
        async with open_supervisor(folder / "state") as supervisor:
            # What the first run of a process loads is no part of what each takes.
            first = (await start_all(supervisor, folder, 1))[0]
            warden = [pid for pid in await watchers_of([first]) if parent_of(pid) == os.getpid()]
            await first.kill()
            await anyio.sleep(SETTLE_SECONDS)
            await stream(supervisor, folder, runs, weigh(warden))
        await kill_all(folder, runs)
        await close_all(folder, runs, POLITE)
        await close_all(folder, runs, CAPSULE)


def main() -> None:
    backend = sys.argv[1] if len(sys.argv) > 1 else "asyncio"
    runs = int(sys.argv[2]) if len(sys.argv) > 2 else RUNS
    say(f"{backend}, {runs} runs, load {os.getloadavg()[0]:.1f}")
    anyio.run(measure, runs, backend=backend)


if __name__ == "__main__":
    main()
