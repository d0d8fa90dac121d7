"""A process that owns runs, as `capsule run` does: supervisor_child.py VERB STATE [ARGUMENT ...]"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio

sys.path.insert(0, str(Path(__file__).parents[1]))

from capsule_runtime import StoreError
from capsule_runtime.active_run import ActiveRun
from capsule_runtime.core.ceilings import DayCeilings
from capsule_runtime.runs import open_runs
from capsule_runtime.supervisor import open_supervisor
from support.harness import agent_capsule
from support.logs import log_of
from support.processes import processes_below
from support.supervised import heard, request_for


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def day() -> DayCeilings:
    """Return the ceilings of the day that the test has set for its children."""
    microusd, tokens = (os.environ.get(f"TEST_DAY_{it}") for it in ("MICROUSD", "TOKENS"))
    return DayCeilings(int(microusd) if microusd else None, int(tokens) if tokens else None)


async def own(state: Path, capsule: str, *context: str) -> None:
    """Carry out one run: say its id, then its log as it is committed, byte for byte."""
    async with open_supervisor(state, day=day()) as supervisor:
        wishes = {"context": context[0]} if context else {}
        run = await supervisor.start(request_for(Path(capsule), **wishes))
        say(run.id)
        async for row in run.follow():
            sys.stdout.buffer.write(row.body)
            sys.stdout.buffer.flush()


async def own_many(state: Path, capsule: str, count: str) -> None:
    """Carry out *count* runs at once, and say how each ended."""
    async with open_supervisor(state) as supervisor:
        runs = [await supervisor.start(request_for(Path(capsule))) for _ in range(int(count))]
        for run in runs:
            say(run.id, (await run.wait()).outcome)


async def recover(state: Path) -> None:
    """Wait for a line, then end what dead owners left, and say what that was."""
    async with open_runs(state) as runs:
        say("ready")
        sys.stdin.readline()
        say(*await runs.recover())


async def fill_the_disk(state: Path) -> None:
    """Stream to a small disk until it is full, beside a run that says nothing."""
    ballast = state.parent / "ballast"
    ballast.write_bytes(bytes(6 * 1024 * 1024))
    seen: dict[str, bytes] = {}
    async with open_supervisor(state) as supervisor:
        quiet = await supervisor.start(request_for(agent_capsule(state.parent / "quiet", "deaf")))
        await heard(quiet, "cannot hear you")
        loud = await supervisor.start(request_for(agent_capsule(state.parent / "loud", "floods")))
        seen[loud.id] = b"".join([row.body async for row in loud.follow()])
        await _say_end("loud", loud)
        say("left", len(processes_below(state / "runs" / loud.id)))
    await _say_end("quiet", quiet)
    seen[quiet.id] = b""
    say("left", len(processes_below(state)))
    ballast.unlink()
    async with open_supervisor(state):
        pass
    async with open_runs(state) as runs:
        for run, before in seen.items():
            log = log_of(runs.rows(run))
            say(log.record.outcome, log.body.startswith(before), len(before) > 100_000)
        say("problems", await runs.check())


async def run_out_of_files(state: Path, capsule: str) -> None:
    """Have no descriptors left for a run; then have some again."""
    limit, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with open_supervisor(state) as supervisor:
        await (await supervisor.start(request_for(Path(capsule)))).wait()
        # One for the run's bell, and few enough for its streams.
        room = len(os.listdir("/proc/self/fd")) + 3
        resource.setrlimit(resource.RLIMIT_NOFILE, (room, hard))
        run = await supervisor.start(request_for(Path(capsule)))
        record = await run.wait()
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        say(record.reason, record.message)
        record = await (await supervisor.start(request_for(Path(capsule)))).wait()
        say(record.outcome)


async def _say_end(name: str, run: ActiveRun) -> None:
    try:
        say(name, (await run.wait()).outcome)
    except StoreError as error:
        say(name, error.code)


VERBS: dict[str, Callable[..., Awaitable[None]]] = {
    verb.__name__: verb for verb in (fill_the_disk, own, own_many, recover, run_out_of_files)
}

if __name__ == "__main__":
    anyio.run(VERBS[sys.argv[1]], Path(sys.argv[2]), *sys.argv[3:])
