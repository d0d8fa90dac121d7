"""Latency of a streamed delta: the harness's write to a follower's read, committed in between.

Run: python tests/bench/bench_latency.py [asyncio|trio]

One process writes the deltas of all runs straight into the harnesses' own stdout pipes, each with the
instant of its write in it; the harnesses, each a `cat` of its task, only wait for their stdin to end.
A stream is measured that is under way: Python's collector has swept up after the launches of all runs
(for 200 that takes it 45 ms, and it comes again every 9 s or so), the first second has no stamps, and
the runs are told to end only when all deltas have arrived.
"""

from __future__ import annotations

import gc
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import anyio

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.bench_pipeline import fdatasync_ms
from capsule_runtime import Message, TextPart
from capsule_runtime.active_run import ActiveRun
from capsule_runtime.core.chain import Row
from capsule_runtime.core.facts import Launched
from capsule_runtime.core.log import decode_entries
from capsule_runtime.request import RunRequest
from capsule_runtime.runs import open_runs
from capsule_runtime.supervisor import Supervisor, open_supervisor

SECONDS = 5.0
WARM_SECONDS = 1.0
STAMPED = b'"text":"'
CAPSULE = """
name = "reader"
[harness]
driver = "jsonl"
command = ["cat"]
[workdir]
mode = "rw"
[limits]
output = "64GiB"
"""
LOADER = r"""
import os, sys, time
rate, seconds, warm, flood, *paths = sys.argv[1:]
rate, seconds, warm, flood = float(rate), float(seconds), float(warm), int(flood)
fds = [os.open(path, os.O_WRONLY) for path in paths]
for fd in fds[:flood]:
    os.set_blocking(fd, False)
block = b'{"type":"text-delta","text":"x"}\n' * 400
gap, start, n, rest = 1 / rate / max(1, len(fds) - flood), time.monotonic(), 0, [b""] * flood
while (now := time.monotonic()) < start + warm + seconds:
    for i in range(flood):
        try:
            rest[i] = rest[i] or block
            rest[i] = rest[i][os.write(fds[i], rest[i]):]
        except BlockingIOError:
            pass
    due = start + n * gap
    if now < due:
        if not flood:
            time.sleep(due - now)
        continue
    stamp = time.monotonic_ns() if now > start + warm else 0
    os.write(fds[flood + n % (len(fds) - flood)], b'{"type":"text-delta","text":"%d"}\n' % stamp)
    n += 1
time.sleep(0.5)
for i, fd in enumerate(fds):
    os.set_blocking(fd, True)
    os.write(fd, (rest[i] if i < flood else b"") + b'{"type":"turn-end","result":""}\n')
    os.close(fd)
"""


@dataclass(frozen=True)
class Load:
    """How many runs trickle at which rate, beside how many that flood."""

    name: str
    runs: int
    per_second: int
    floods: int = 0
    elsewhere: bool = False
    """Whether the first run is followed in another process, and no run in this one."""


@dataclass
class Measured:
    """Latencies of trickling deltas in milliseconds, and the CPU of the supervisor."""

    latencies_ms: list[float] = field(default_factory=list[float])
    cpu_share: float = 0.0

    def __str__(self) -> str:
        found = sorted(self.latencies_ms)
        p50, p99 = found[len(found) // 2], found[len(found) * 99 // 100]
        return f"p50 {p50:.2f} ms, p99 {p99:.2f} ms, n {len(found)}, cpu {self.cpu_share:.0%}"


async def watch(rows: AsyncIterator[Row], measured: Measured) -> None:
    """Read to the end and note how old each stamped delta is when it is read."""
    async for row in rows:
        now = time.monotonic_ns()
        start = row.body.find(STAMPED) + len(STAMPED)
        while start > len(STAMPED) - 1:
            stamp = row.body[start : row.body.index(b'"', start)]
            if len(stamp) > 6 and stamp.isdigit():
                measured.latencies_ms.append((now - int(stamp)) / 1e6)
            start = row.body.find(STAMPED, start) + len(STAMPED)


async def start_all(supervisor: Supervisor, folder: Path, count: int) -> list[ActiveRun]:
    """Start *count* runs."""
    request = RunRequest(folder, Message("m", (TextPart("wait"),)), folder, containment="advisory")
    return [await supervisor.start(request) for _ in range(count)]


async def stdout_of(run: ActiveRun) -> str:
    """Return where the run's harness would write, once it is launched."""
    async for row in run.follow():
        for entry in decode_entries(row.body):
            if isinstance(entry, Launched):
                return f"/proc/{entry.pid}/fd/1"
    raise AssertionError("the run ended before its launch")


async def measure(load: Load) -> Measured:
    """Run *load* under one supervisor, followed here or in another process."""
    measured = Measured()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "capsule.toml").write_text(CAPSULE)
        async with open_supervisor(folder / "state") as supervisor:
            runs = await start_all(supervisor, folder, load.runs + load.floods)
            pipes = [await stdout_of(run) for run in runs]
            figures = [str(load.per_second), str(SECONDS), str(WARM_SECONDS), str(load.floods)]
            command = [sys.executable, "-c", LOADER, *figures, *pipes]
            gc.collect()
            async with anyio.create_task_group() as tasks:
                before = time.process_time()
                if load.elsewhere:
                    tasks.start_soon(follow_elsewhere, folder / "state", runs[0].id, measured)
                else:
                    for run in runs:
                        tasks.start_soon(watch, run.follow(), measured)
                await anyio.run_process(command)
                for run in runs:
                    await run.wait()
                measured.cpu_share = (time.process_time() - before) / (SECONDS + WARM_SECONDS)
    return measured


async def follow_elsewhere(state: Path, run: str, measured: Measured) -> None:
    """Follow in a child process, and take over what it measured."""
    command = [sys.executable, __file__, "--follow", str(state), run]
    done = await anyio.run_process(command, stderr=None)
    measured.latencies_ms += [float(line) for line in done.stdout.split()]


async def follow_here(state: Path, run: str) -> None:
    measured = Measured()
    async with open_runs(state) as runs:
        await watch(runs.follow(run), measured)
    sys.stdout.write("\n".join(map(str, measured.latencies_ms)))


LOADS = (
    Load("1 x 200/s", 1, 200),
    Load("200 x 50/s", 200, 50),
    Load("199 x 50/s beside a flood", 199, 50, 1),
    Load("1 x 200/s, follower in another process", 1, 200, elsewhere=True),
)


def main() -> None:
    if "--follow" in sys.argv:
        anyio.run(follow_here, Path(sys.argv[-2]), sys.argv[-1])
        return
    backend = sys.argv[1] if len(sys.argv) > 1 else "asyncio"
    if len(sys.argv) > 2:
        load = LOADS[int(sys.argv[2])]
        sys.stdout.write(f"{load.name}: {anyio.run(measure, load, backend=backend)}\n")
        return
    with tempfile.TemporaryDirectory() as folder:
        sys.stdout.write(f"{backend}; fdatasync p50 {fdatasync_ms(Path(folder)):.2f} ms\n")
    sys.stdout.flush()
    for number in range(len(LOADS)):  # each in a process that has nothing behind it
        subprocess.run([sys.executable, __file__, backend, str(number)], check=True)


if __name__ == "__main__":
    main()
