"""Whatever is cancelled, wherever it waits: no process is left, and each run has one end."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from capsule_runtime import (
    RunHandle,
    RunRequest,
    Supervisor,
    TextDelta,
    TextFrame,
    TurnEnd,
    open_supervisor,
)
from capsule_runtime.runs import open_runs
from capsule_runtime.testing import UntilInterrupted, in_memory, recorded_capsule
from support.cancelling import Work, cancelled_by_scope, cancelled_by_task
from support.logs import Log, assert_well_ended
from support.processes import processes_below

Cancelled = Callable[[Work, int], Awaitable[bool]]

impatiently = partial(cancelled_by_task, times=4)
WAYS = [
    pytest.param("asyncio", cancelled_by_scope, id="asyncio-scope"),
    pytest.param("asyncio", cancelled_by_task, id="asyncio-task"),
    pytest.param("asyncio", impatiently, id="asyncio-task-again-and-again"),
    pytest.param("trio", cancelled_by_scope, id="trio-scope"),
]
AGENT = (TextDelta("ask me"), UntilInterrupted(), TurnEnd("stopped"))


@pytest.fixture
def request_polite(tmp_path: Path) -> RunRequest:
    capsule = recorded_capsule(tmp_path / "capsule", *AGENT)
    return RunRequest.of(capsule, "do it", workdir=tmp_path, containment="advisory")


async def first_text(run: RunHandle) -> None:
    async for frame in run.frames():
        if isinstance(frame, TextFrame):
            return


async def ends(state: Path) -> list[str]:
    """Return the reasons of all runs, each of which must have ended well."""
    async with open_runs(state) as runs:
        logs = [Log(tuple(runs.rows(row.id))) for row in runs.recent()]
    for log in logs:
        assert_well_ended(log)
    return [log.record.ended.reason for log in logs if log.record.ended]


@pytest.mark.parametrize(("anyio_backend", "cancelled"), WAYS)
async def test_a_program_cancelled_anywhere_leaves_nothing(
    request_polite: RunRequest, cancelled: Cancelled
) -> None:
    """Opening, starting, launching, streaming, stopping and closing, at each wait of each."""

    async def program(state: Path) -> None:
        async with open_supervisor(state) as supervisor:
            run = await supervisor.start(request_polite)
            async for _ in run.frames():
                if await run_has_spoken(supervisor, run):
                    await run.interrupt()
            await run.wait()

    reasons: list[list[str]] = []
    was_cancelled = True
    while was_cancelled:
        with in_memory() as state:
            was_cancelled = await cancelled(program(state), len(reasons) + 1)
            assert processes_below(state) == []
            reasons.append(await ends(state) if (state / "capsule.db").exists() else [])

    assert reasons[-1] == ["interrupted"]
    assert {reason for told in reasons for reason in told} == {"terminated", "interrupted"}
    assert len(reasons) > 8


async def run_has_spoken(supervisor: Supervisor, run: RunHandle) -> bool:
    await first_text(run)
    return supervisor.list()[0].state == "running"


async def test_a_supervisor_cancelled_at_any_step_of_a_launch_leaves_nothing(
    request_polite: RunRequest,
) -> None:
    with in_memory() as state:
        for steps in range(0, 60, 3):
            with anyio.CancelScope() as scope:
                async with open_supervisor(state) as supervisor:
                    await supervisor.start(request_polite)
                    for _ in range(steps):
                        await anyio.lowlevel.checkpoint()
                    scope.cancel()
            assert processes_below(state) == []
        reasons = await ends(state)

    assert set(reasons) == {"terminated"}
    assert len(reasons) == 20


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_closing_has_a_deadline_also_where_nothing_can_be_written(
    request_polite: RunRequest,
) -> None:
    with in_memory() as state:
        async with open_supervisor(state) as supervisor:
            run = await supervisor.start(request_polite)
            await first_text(run)
            lock = os.open(state / "commit.lock", os.O_RDWR | os.O_CLOEXEC)
            fcntl.flock(lock, fcntl.LOCK_EX)
            began = anyio.current_time()
        took = anyio.current_time() - began
        left = processes_below(state)
        os.close(lock)
        async with open_supervisor(state):
            reasons = await ends(state)

    assert took < 20
    assert left == []
    assert reasons == ["lost"]


@pytest.mark.parametrize(("anyio_backend", "cancelled"), WAYS)
async def test_a_start_that_is_cancelled_leaves_no_run_going(
    request_polite: RunRequest, cancelled: Cancelled
) -> None:
    started: list[RunHandle] = []

    async def start(supervisor: Supervisor) -> None:
        started.append(await supervisor.start(request_polite))

    at = 0
    with in_memory() as state:
        async with open_supervisor(state) as supervisor:
            while not started:
                at += 1
                await cancelled(start(supervisor), at)
            await started[0].kill()
            reasons = [await ended(supervisor, row.run) for row in supervisor.list()]
        assert processes_below(state) == []
        assert len(await ends(state)) == len(reasons)

    assert reasons == ["killed", *["interrupted"] * (len(reasons) - 1)]
    assert at > 1


async def ended(supervisor: Supervisor, run: str) -> str:
    with anyio.fail_after(30):
        return (await supervisor.get(run).wait()).reason


@pytest.mark.parametrize(("anyio_backend", "cancelled"), WAYS)
@pytest.mark.parametrize("verb", ["frames", "wait", "frames of another's", "wait for another's"])
async def test_whoever_looks_on_and_is_cancelled_leaves_the_run_going(
    request_polite: RunRequest, cancelled: Cancelled, verb: str
) -> None:
    async def look_on(run: RunHandle) -> None:
        if verb.startswith("wait"):
            await run.wait()
        else:
            async for _ in run.frames():
                pass

    with in_memory() as state:
        async with open_supervisor(state) as supervisor, open_supervisor(state) as other:
            run = await supervisor.start(request_polite)
            await first_text(run)
            looker = other.get(run.id) if "another" in verb else run
            for at in (1, 2):
                with anyio.move_on_after(0.2):
                    await cancelled(look_on(looker), at)
            live = supervisor.list(live_only=True)
            await run.interrupt()
            result = await looker.wait()
        assert processes_below(state) == []

    assert [row.run for row in live] == [run.id]
    assert (result.outcome, result.reason) == ("canceled", "interrupted")


@pytest.mark.parametrize(("anyio_backend", "cancelled"), WAYS)
@pytest.mark.parametrize("whose", ["own", "another's"])
async def test_a_stop_that_was_asked_for_is_done_also_if_whoever_asked_is_cancelled(
    request_polite: RunRequest, cancelled: Cancelled, whose: str
) -> None:
    at, was_cancelled, reasons = 0, True, list[str]()
    with in_memory() as state:
        async with open_supervisor(state) as supervisor, open_supervisor(state) as other:
            while was_cancelled:
                at += 1
                run = await supervisor.start(request_polite)
                await first_text(run)
                asker = run if whose == "own" else other.get(run.id)
                was_cancelled = await cancelled(interrupt(asker), at)
                reasons.append(await ended(supervisor, run.id))
        assert processes_below(state) == []

    assert set(reasons) == {"interrupted"}


async def interrupt(run: RunHandle) -> None:
    await run.interrupt()
