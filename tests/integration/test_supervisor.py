"""Runs under a supervisor: starting, stopping, following, ending, beside and after one another."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from capsule_runtime import (
    ContainmentError,
    HarnessError,
    ManifestError,
    Outcome,
    Reason,
    StoreError,
    UsageError,
)
from capsule_runtime.active_run import ActiveRun
from capsule_runtime.core.machine import Machine
from capsule_runtime.host.homes import RESULT_NAME
from capsule_runtime.host.state import default_state
from capsule_runtime.runs import open_runs
from capsule_runtime.supervisor import open_supervisor
from capsule_runtime.testing import FakeClock
from support.drivers import install_drivers
from support.harness import agent_capsule, shell_capsule, write_capsule
from support.logs import Log, finished
from support.processes import parent_of, processes_below, processes_of
from support.supervised import CHILD, ended, heard, intrude, opened, request_for

ONLY_ASYNCIO = pytest.mark.parametrize("anyio_backend", ["asyncio"])


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


def outcome_of(log: Log) -> tuple[Outcome, Reason]:
    assert log.record.ended is not None
    return log.record.ended.outcome, log.record.ended.reason


async def stored(state: Path, run: str) -> Log:
    async with open_runs(state) as runs:
        return Log(tuple(runs.rows(run)))


# Stops


async def test_an_interrupted_harness_ends_its_turn_within_its_grace(
    tmp_path: Path, state: Path
) -> None:
    capsule = agent_capsule(tmp_path / "capsule", "polite", "0.3", limits={"grace": "50s"})
    async with open_supervisor(state) as supervisor:
        run = await supervisor.start(request_for(capsule))
        await heard(run, "ask me")
        await run.stop(Reason.INTERRUPTED)
        log = await ended(run)

    assert outcome_of(log) == (Outcome.CANCELED, Reason.INTERRUPTED)
    assert (log.final.message, log.final.response) == ("task canceled", None)
    assert not log.record.kill_started
    assert log.record.exited is not None
    assert log.record.exited.code == 0
    result = state / "runs" / run.id / "out" / RESULT_NAME
    assert result.read_text() == "stopped where I was"


async def test_whoever_stops_a_run_may_shorten_its_grace(tmp_path: Path, state: Path) -> None:
    capsule = agent_capsule(tmp_path / "capsule", "deaf", limits={"grace": "1h"})
    async with open_supervisor(state) as supervisor:
        run = await supervisor.start(request_for(capsule))
        await heard(run, "cannot hear")
        await run.stop(Reason.HANG_UP, grace=0.1)
        log = await ended(run)

    assert outcome_of(log) == (Outcome.CANCELED, Reason.HANG_UP)
    assert log.record.kill_started


async def test_a_kill_gives_no_grace(tmp_path: Path, state: Path) -> None:
    capsule = agent_capsule(tmp_path / "capsule", "deaf", limits={"grace": "1h"})
    async with open_supervisor(state) as supervisor:
        run = await supervisor.start(request_for(capsule))
        await heard(run, "cannot hear")
        await run.stop(Reason.KILLED, "enough of it")
        log = await ended(run)

    assert outcome_of(log) == (Outcome.CANCELED, Reason.KILLED)
    assert log.record.stop is not None
    assert log.record.stop.message == "enough of it"


async def test_a_kill_after_an_interrupt_cuts_the_grace_short(tmp_path: Path, state: Path) -> None:
    capsule = agent_capsule(tmp_path / "capsule", "deaf", limits={"grace": "1h"})
    async with open_supervisor(state) as supervisor:
        run = await supervisor.start(request_for(capsule))
        await heard(run, "cannot hear")
        await run.stop(Reason.INTERRUPTED)
        await run.stop(Reason.KILLED)
        log = await ended(run)

    assert outcome_of(log) == (Outcome.CANCELED, Reason.KILLED)
    assert log.record.stop is not None
    assert log.record.stop.reason is Reason.INTERRUPTED


async def test_a_stop_comes_too_late_for_a_run_that_has_ended(tmp_path: Path, state: Path) -> None:
    capsule = agent_capsule(tmp_path / "capsule", "never_reads")
    async with open_supervisor(state) as supervisor:
        run = await supervisor.start(request_for(capsule))
        log = await ended(run)
        await run.stop(Reason.KILLED)

    assert await stored(state, run.id) == log
    assert outcome_of(log) == (Outcome.COMPLETED, Reason.COMPLETED)


@pytest.mark.parametrize("reason", [Reason.INTERRUPTED, Reason.KILLED])
async def test_a_run_can_be_stopped_at_any_step_of_its_launch(
    tmp_path: Path, state: Path, reason: Reason
) -> None:
    capsule = agent_capsule(tmp_path / "capsule", "deaf", limits={"grace": "10ms"})
    logs: list[Log] = []
    async with open_supervisor(state) as supervisor:
        for steps in range(25):
            run = await supervisor.start(request_for(capsule))
            for _ in range(steps):
                await anyio.lowlevel.checkpoint()
            await run.stop(reason)
            logs.append(await ended(run))

    assert {outcome_of(log) for log in logs} == {(Outcome.CANCELED, reason)}


async def test_a_stop_is_done_even_if_whoever_asked_is_cancelled(
    tmp_path: Path, state: Path
) -> None:
    capsule = agent_capsule(tmp_path / "capsule", "deaf", limits={"grace": "1h"})
    async with open_supervisor(state) as supervisor:
        run = await supervisor.start(request_for(capsule))
        await heard(run, "cannot hear")
        with anyio.CancelScope() as scope:
            scope.cancel()
            await run.stop(Reason.KILLED)
        log = await ended(run)

    assert scope.cancelled_caught
    assert outcome_of(log) == (Outcome.CANCELED, Reason.KILLED)


# Limits


async def test_the_wall_limit_ends_a_run(tmp_path: Path, state: Path) -> None:
    limits = {"wall": "300ms", "grace": "100ms"}
    capsule = agent_capsule(tmp_path / "capsule", "deaf", limits=limits)
    async with open_supervisor(state) as supervisor:
        log = await ended(await supervisor.start(request_for(capsule)))

    assert outcome_of(log) == (Outcome.TIMED_OUT, Reason.WALL)
    assert log.final.message == "the run took longer than its wall limit of 0.3s"


async def test_the_caller_may_lower_the_wall_limit(tmp_path: Path, state: Path) -> None:
    capsule = agent_capsule(tmp_path / "capsule", "deaf", limits={"grace": "100ms"})
    async with open_supervisor(state) as supervisor:
        log = await ended(await supervisor.start(request_for(capsule, wall_seconds=0.2)))

    assert outcome_of(log) == (Outcome.TIMED_OUT, Reason.WALL)


@pytest.mark.parametrize(
    ("phase", "limited", "doing"),
    [
        ("first_token", "first_token", "waiting for the model's first token"),
        ("tool", "tool", "running a tool"),
        ("rate_limited", "rate_limited", "waiting out a rate limit"),
        ("after_tool", "streaming", "streaming an answer"),
    ],
)
async def test_silence_has_a_limit_in_every_phase(
    tmp_path: Path, state: Path, phase: str, limited: str, doing: str
) -> None:
    limits = {f"idle.{limited}": "300ms", "grace": "100ms"}
    if phase == "after_tool":
        # The clock that ran for the tool's long limit must notice that a shorter one holds now.
        limits["idle.first_token"] = "300ms"
    capsule = agent_capsule(tmp_path / "capsule", "idles_in", phase, limits=limits)
    async with open_supervisor(state) as supervisor:
        log = await ended(await supervisor.start(request_for(capsule)))

    assert outcome_of(log) == (Outcome.TIMED_OUT, Reason.IDLE)
    assert log.final.message == f"error[E-RUN-035]: the harness was silent for 0.3s while {doing}"


@ONLY_ASYNCIO
async def test_a_harness_that_goes_on_talking_is_not_idle(tmp_path: Path, state: Path) -> None:
    limits = {"idle.streaming": "1s", "idle.first_token": "1m"}
    capsule = agent_capsule(tmp_path / "capsule", "trickles", "15", "0.1", limits=limits)
    async with open_supervisor(state) as supervisor:
        log = await ended(await supervisor.start(request_for(capsule)))

    assert log.final.response == "counted"


# Cancelling and closing


async def test_a_run_outlives_the_task_that_started_it(tmp_path: Path, state: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    capsule = agent_capsule(tmp_path / "capsule", "waits", str(gate))
    runs: list[ActiveRun] = []

    async def start() -> None:
        runs.append(await supervisor.start(request_for(capsule)))
        await heard(runs[0], "here")
        tasks.cancel_scope.cancel()
        await runs[0].wait()

    async with open_supervisor(state) as supervisor:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(start)
        with opened(gate) as writer:
            os.write(writer, b"x")
            log = await ended(runs[0])

    assert log.final.response == "undisturbed"


async def test_closing_a_supervisor_ends_its_runs(tmp_path: Path, state: Path) -> None:
    capsule = agent_capsule(tmp_path / "capsule", "polite", "0")
    async with open_supervisor(state) as supervisor:
        runs = [await supervisor.start(request_for(capsule)) for _ in range(3)]
        for run in runs:
            await heard(run, "ask me")

    logs = [await ended(run) for run in runs]
    assert {outcome_of(log) for log in logs} == {(Outcome.CANCELED, Reason.TERMINATED)}
    assert not any(log.record.kill_started for log in logs)
    assert processes_below(state) == []


@ONLY_ASYNCIO
async def test_closing_kills_as_one_batch_who_does_not_leave(tmp_path: Path, state: Path) -> None:
    capsule = agent_capsule(tmp_path / "capsule", "deaf", limits={"grace": "1h"})
    async with open_supervisor(state) as supervisor:
        runs = [await supervisor.start(request_for(capsule)) for _ in range(5)]
        for run in runs:
            await heard(run, "cannot hear")
        began = anyio.current_time()
    took = anyio.current_time() - began

    logs = [await ended(run) for run in runs]
    assert {outcome_of(log) for log in logs} == {(Outcome.CANCELED, Reason.TERMINATED)}
    assert all(log.record.kill_started for log in logs)
    assert 4 <= took < 20
    assert processes_below(state) == []


async def test_cancelling_the_supervisor_ends_its_runs(tmp_path: Path, state: Path) -> None:
    capsule = agent_capsule(tmp_path / "capsule", "polite", "0")
    runs: list[ActiveRun] = []
    with anyio.CancelScope() as scope:
        async with open_supervisor(state) as supervisor:
            runs.append(await supervisor.start(request_for(capsule)))
            await heard(runs[0], "ask me")
            scope.cancel()
            await runs[0].wait()

    assert scope.cancelled_caught
    assert outcome_of(await ended(runs[0])) == (Outcome.CANCELED, Reason.TERMINATED)
    assert processes_below(state) == []


async def test_cancelling_in_the_middle_of_a_launch_leaves_nothing(
    tmp_path: Path, state: Path
) -> None:
    capsule = agent_capsule(tmp_path / "capsule", "polite", "0")
    runs: list[ActiveRun] = []
    with anyio.CancelScope() as scope:
        async with open_supervisor(state) as supervisor:
            runs.append(await supervisor.start(request_for(capsule)))
            scope.cancel()

    assert outcome_of(await ended(runs[0])) == (Outcome.CANCELED, Reason.TERMINATED)
    assert processes_below(state) == []


async def test_an_error_in_the_block_ends_the_runs_and_comes_out_as_it_is(
    tmp_path: Path, state: Path
) -> None:
    capsule = agent_capsule(tmp_path / "capsule", "polite", "0")
    runs: list[ActiveRun] = []
    with pytest.raises(ZeroDivisionError):
        async with open_supervisor(state) as supervisor:
            runs.append(await supervisor.start(request_for(capsule)))
            await heard(runs[0], "ask me")
            raise ZeroDivisionError

    assert outcome_of(await ended(runs[0])) == (Outcome.CANCELED, Reason.TERMINATED)


# Following


async def test_a_cursor_beyond_all_numbers_waits_for_the_end(tmp_path: Path, state: Path) -> None:
    capsule = agent_capsule(tmp_path / "capsule", "trickles", "2", "0.005")
    async with open_supervisor(str(state)) as supervisor:
        run = await supervisor.start(request_for(capsule))

        assert [frame async for frame in run.frames(after=2**64)] == []
        assert (await run.wait()).outcome is Outcome.COMPLETED


async def test_any_number_of_followers_sees_the_same_log(tmp_path: Path, state: Path) -> None:
    capsule = agent_capsule(tmp_path / "capsule", "trickles", "20", "0.005")
    logs: list[Log] = []
    async with open_supervisor(state, clock=FakeClock()) as supervisor:
        for followers in (0, 1, 20):
            run = await supervisor.start(request_for(capsule))
            seen: list[Log] = []

            async def follow(run: ActiveRun = run, seen: list[Log] = seen) -> None:
                seen.append(await finished(run))

            async with anyio.create_task_group() as tasks:
                for _ in range(followers):
                    tasks.start_soon(follow)
                await run.wait()
            log = await ended(run)
            assert {follower.body for follower in seen} <= {log.body}
            assert (await stored(state, run.id)).body == log.body
            logs.append(log)

    assert len({log.without_ids for log in logs}) == 1
    assert len(logs[0].lines) > 25


async def test_a_follower_may_begin_behind_any_entry(tmp_path: Path, state: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    capsule = agent_capsule(tmp_path / "capsule", "waits", str(gate))
    live: dict[int, bytes] = {}

    async def follow(after: int) -> None:
        live[after] = b"".join([row.body async for row in run.follow(after)])

    async with open_supervisor(state) as supervisor:
        run = await supervisor.start(request_for(capsule))
        async with anyio.create_task_group() as tasks:
            for after in range(5):
                tasks.start_soon(follow, after)
            await heard(run, "here")
            for after in range(5, 10):
                tasks.start_soon(follow, after)
            with opened(gate) as writer:
                os.write(writer, b"x")
                await run.wait()
        log = await ended(run)
        late = [
            b"".join([row.body async for row in run.follow(after)])
            for after in range(len(log.lines) + 3)
        ]

    rests = [b"".join(log.lines[after:]) for after in range(len(log.lines) + 3)]
    assert late == rests
    assert live == {after: rests[after] for after in range(10)}


async def test_a_follower_that_looks_away_misses_nothing(tmp_path: Path, state: Path) -> None:
    capsule = agent_capsule(tmp_path / "capsule", "chatty", "5000", "1000")
    async with open_supervisor(state) as supervisor:
        run = await supervisor.start(request_for(capsule))
        follower = run.follow()
        first = await anext(follower)
        record = await run.wait()
        rest = [row async for row in follower]

    log = Log((first, *rest))
    assert record.outcome is Outcome.COMPLETED
    assert log.body == (await stored(state, run.id)).body
    assert len(log.streamed) == 5_000_000


# Several at once


async def test_two_supervisors_share_a_state_directory(tmp_path: Path, state: Path) -> None:
    capsule = agent_capsule(tmp_path / "capsule", "polite", "0")
    async with open_supervisor(state) as first:
        one = await first.start(request_for(capsule))
        await heard(one, "ask me")
        async with open_supervisor(state) as second:
            other = await second.start(request_for(capsule))
            await heard(other, "ask me")
        alive = processes_of(one.id)
        await one.stop(Reason.INTERRUPTED)
        logs = [await ended(one), await ended(other)]

    assert alive != []
    assert [outcome_of(log)[1] for log in logs] == [Reason.INTERRUPTED, Reason.TERMINATED]


@ONLY_ASYNCIO
async def test_several_processes_share_a_state_directory(tmp_path: Path, state: Path) -> None:
    capsule = agent_capsule(tmp_path / "capsule", "chatty", "1000", "50")
    command = [sys.executable, str(CHILD), "own_many", str(state), str(capsule), "4"]
    told: list[str] = []

    async def own() -> None:
        done = await anyio.run_process(command, stderr=None)
        told.extend(done.stdout.decode().splitlines())

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(own)
    async with open_runs(state) as runs:
        found, problems = runs.recent(), await runs.check()

    assert sorted(told) == sorted(f"{row.id} completed" for row in found)
    assert len(found) == 12
    assert problems == []


async def test_a_context_has_one_run_at_a_time(tmp_path: Path, state: Path) -> None:
    capsule = agent_capsule(tmp_path / "capsule", "polite", "0")
    async with open_supervisor(state) as supervisor, open_runs(state) as runs:
        run = await supervisor.start(request_for(capsule, context="talk"))
        with pytest.raises(UsageError, match=f"'talk' is busy with {run.id}") as refused:
            await supervisor.start(request_for(capsule, context="talk"))
        busy = runs.recent()
        await heard(run, "ask me")
        await run.stop(Reason.INTERRUPTED)
        await ended(run)
        free = runs.recent()
        again = await supervisor.start(request_for(capsule, context="talk"))

    assert refused.value.code == "E-USE-010"
    assert [(row.id, row.context, row.state) for row in busy] == [(run.id, "talk", "starting")]
    assert [(row.state, row.outcome, row.reason) for row in free] == [
        ("ended", "canceled", "interrupted")
    ]
    assert outcome_of(await ended(again))[0] is Outcome.CANCELED


async def test_a_context_hands_session_and_home_to_its_next_run(
    tmp_path: Path, state: Path
) -> None:
    capsule = agent_capsule(tmp_path / "capsule", "reports_task")
    given: list[dict[str, object]] = []
    ids: list[str] = []
    async with open_supervisor(state) as supervisor:
        for context in ("talk", "talk", None):
            run = await supervisor.start(request_for(capsule, "say what you got", context=context))
            log = await ended(run)
            given.append(json.loads(log.final.response or ""))
            ids.append(run.id)

    tasks = [json.loads(json.dumps(it["task"])) for it in given]
    assert [task.get("session") for task in tasks] == [None, f"session of {ids[0]}", None]
    assert [it["home"] for it in given] == [[], [f"left-by-{ids[0]}"], []]
    assert [task["run"] for task in tasks] == ids
    assert [task["context"] for task in tasks[:2]] == ["talk", "talk"]
    assert tasks[0]["message"]["parts"] == [{"type": "text", "text": "say what you got"}]
    assert tasks[0]["workdir"] == str(tmp_path)
    assert tasks[0]["out"] == str(state / "runs" / ids[0] / "out")


async def test_a_context_keeps_what_its_driver_remembers(
    tmp_path: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.path", [install_drivers(tmp_path / "distribution"), *sys.path])
    capsule = agent_capsule(tmp_path / "capsule", "reports_task", driver="remembering")
    memories: list[object] = []
    async with open_supervisor(state) as supervisor:
        for _ in range(2):
            log = await ended(await supervisor.start(request_for(capsule, context="talk")))
            memories.append(json.loads(log.final.response or "")["memory"])

    assert memories[0] == "nothing"
    assert str(memories[1]).endswith(" bytes")


async def test_a_context_keeps_its_driver(
    tmp_path: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.path", [install_drivers(tmp_path / "distribution"), *sys.path])
    async with open_supervisor(state) as supervisor:
        capsule = agent_capsule(tmp_path / "one", "never_reads")
        await ended(await supervisor.start(request_for(capsule, context="talk")))
        other = agent_capsule(tmp_path / "other", "never_reads", driver="remembering")
        with pytest.raises(UsageError, match="'talk' belongs to the driver 'jsonl'") as refused:
            await supervisor.start(request_for(other, context="talk"))

    assert refused.value.code == "E-USE-013"


# What cannot be started


async def test_what_cannot_be_started_leaves_no_run(tmp_path: Path, state: Path) -> None:
    missing = write_capsule(tmp_path / "missing", ("no-such-program",))
    not_there = write_capsule(tmp_path / "not-there", ("./no-such-file",))
    fine = agent_capsule(tmp_path / "fine", "never_reads")
    async with open_supervisor(state) as supervisor, open_runs(state) as runs:
        with pytest.raises(HarnessError, match="'no-such-program' is not on PATH"):
            await supervisor.start(request_for(missing))
        with pytest.raises(HarnessError, match="is not an executable file"):
            await supervisor.start(request_for(not_there))
        with pytest.raises(UsageError, match="is not a folder"):
            await supervisor.start(request_for(fine, workdir=tmp_path / "nowhere"))
        with pytest.raises(UsageError, match=r"no capsule\.toml"):
            await supervisor.start(request_for(tmp_path / "nothing"))
        with pytest.raises(ContainmentError):
            await supervisor.start(request_for(fine, containment="sealed", workdir="/etc"))
        with pytest.raises(UsageError, match="'loose' is not a containment tier"):
            await supervisor.start(request_for(fine, containment="loose"))
        found = runs.recent()

    assert found == []
    assert list((state / "runs").iterdir()) == []


@pytest.mark.parametrize(
    ("asked", "refused"), [(None, "scoped"), ("scoped", "scoped"), ("sealed", "sealed")]
)
async def test_a_tier_that_this_machine_has_not_leaves_no_run(
    tmp_path: Path,
    state: Path,
    monkeypatch: pytest.MonkeyPatch,
    asked: str | None,
    refused: str,
) -> None:
    monkeypatch.setattr("capsule_runtime.host.namespaces.CANDIDATES", ())
    monkeypatch.setattr("capsule_runtime.host.namespaces.wheel_bwraps", tuple)
    monkeypatch.setattr("capsule_runtime.host.scoping.find_machine", Machine)
    fine = agent_capsule(tmp_path / "fine", "never_reads")
    async with open_supervisor(state) as supervisor, open_runs(state) as runs:
        with pytest.raises(ContainmentError, match=f"{refused!r} cannot be had here: ") as why:
            await supervisor.start(request_for(fine, containment=asked))
        found = runs.recent()

    assert found == []
    assert why.value.hint.startswith(("Install bubblewrap", "Boot a newer kernel"))


async def test_a_program_that_the_kernel_refuses_is_a_failed_run(
    tmp_path: Path, state: Path
) -> None:
    capsule = write_capsule(tmp_path / "capsule", ("./agent",))
    (capsule / "agent").write_text("#!/no/such/interpreter\n")
    (capsule / "agent").chmod(0o755)
    async with open_supervisor(state) as supervisor:
        log = await ended(await supervisor.start(request_for(capsule)))

    assert outcome_of(log) == (Outcome.FAILED, Reason.LAUNCH_FAILED)
    assert "cannot run" in log.final.message
    assert log.record.launched is None


async def test_the_caller_adds_arguments_and_has_the_last_word_on_the_environment(
    tmp_path: Path, state: Path
) -> None:
    script = 'printf \'{"type":"turn-end","result":"%s %s %s"}\\n\' "$1" "$HOME" "$EXTRA"'
    capsule = shell_capsule(tmp_path / "capsule", script)
    env = {"HOME": "/elsewhere", "EXTRA": "é"}
    async with open_supervisor(state) as supervisor:
        run = await supervisor.start(request_for(capsule, args=("more",), env=env))
        log = await ended(run)

    assert log.final.response == "more /elsewhere é"
    assert log.record.attempt is not None
    assert "EXTRA" in log.record.attempt.env_names


# A machine that refuses


@ONLY_ASYNCIO
async def test_a_full_disk_ends_the_runs_and_loses_nothing_acknowledged(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    child = f"exec {sys.executable} {CHILD} fill_the_disk {disk}/state"
    mounted = f"mount -t tmpfs -o size=16m none {disk} && {child}"
    done = await anyio.run_process(["unshare", "-m", "sh", "-c", mounted], stderr=None)

    loud, nothing_left, quiet, nothing_at_all, streamed, silent, check = (
        done.stdout.decode().splitlines()
    )
    assert loud == "loud E-STO-005"
    # The disk may have room left for a few words: SQLite uses a part of its file again.
    assert quiet in ("quiet E-STO-005", "quiet canceled")
    assert (nothing_left, nothing_at_all) == ("left 0", "left 0")
    assert streamed == "lost True True"
    assert silent in ("lost True False", "canceled True False")
    assert check == "problems []"


@ONLY_ASYNCIO
async def test_a_machine_without_descriptors_fails_one_run_only(
    tmp_path: Path, state: Path
) -> None:
    capsule = agent_capsule(tmp_path / "capsule", "never_reads")
    command = [sys.executable, str(CHILD), "run_out_of_files", str(state), str(capsule)]
    done = await anyio.run_process(command, stderr=None)

    assert done.stdout.decode().splitlines() == [
        "host-failed cannot open the harness's streams: [Errno 24] Too many open files",
        "completed",
    ]


async def test_a_log_that_another_process_writes_into_is_given_up(
    tmp_path: Path, state: Path
) -> None:
    capsule = agent_capsule(tmp_path / "capsule", "polite", "0", limits={"grace": "1h"})
    async with open_supervisor(state) as supervisor:
        run = await supervisor.start(request_for(capsule))
        await heard(run, "ask me")
        await intrude(state, run.id)
        with pytest.raises(StoreError) as asked:
            await run.stop(Reason.INTERRUPTED)
        with pytest.raises(StoreError) as waited:
            await run.wait()
        alive = processes_of(run.id)

    assert {asked.value.code, waited.value.code} == {"E-STO-008"}
    assert alive == []


async def test_a_supervisor_closes_also_over_a_log_that_is_lost(
    tmp_path: Path, state: Path
) -> None:
    capsule = agent_capsule(tmp_path / "capsule", "polite", "0", limits={"grace": "1h"})
    async with open_supervisor(state) as supervisor:
        lost = await supervisor.start(request_for(capsule))
        await heard(lost, "ask me")
        await intrude(state, lost.id)
        run = await supervisor.start(request_for(capsule))
        await heard(run, "ask me")

    with pytest.raises(StoreError, match="another driver wrote the log"):
        await lost.wait()
    assert outcome_of(await ended(run)) == (Outcome.CANCELED, Reason.TERMINATED)
    assert processes_below(state) == []


async def test_a_supervisor_that_is_closed_at_once_closes(state: Path) -> None:
    with anyio.fail_after(30):
        async with open_supervisor(state):
            pass


async def test_what_lost_its_watchers_is_found_by_the_name_it_carries(
    tmp_path: Path, state: Path
) -> None:
    async with open_supervisor(state) as supervisor:
        capsule = agent_capsule(tmp_path / "capsule", "deaf")
        run = await supervisor.start(request_for(capsule))
        await heard(run, "cannot hear")
        [harness] = processes_of(run.id)
        burier = parent_of(harness)
        for watcher in (parent_of(burier), burier):
            os.kill(watcher, signal.SIGKILL)

        log = await finished(run)

        assert outcome_of(log) == (Outcome.FAILED, Reason.INDETERMINATE)
        assert processes_of(run.id) == []


async def test_what_the_manifest_cannot_be_or_reach_is_refused(tmp_path: Path, state: Path) -> None:
    outside = write_capsule(tmp_path / "outside", ["sh", "./../agent.sh"])
    endless = write_capsule(tmp_path / "endless", ["sh"])
    (endless / "capsule.toml").unlink()
    (endless / "capsule.toml").symlink_to("/dev/zero")
    nested = write_capsule(tmp_path / "nested", ["sh"])
    (nested / "capsule.toml").write_text("name = " + "[" * 5000)

    for capsule, code in ((outside, "E-MAN-009"), (endless, "E-MAN-005"), (nested, "E-MAN-001")):
        async with open_supervisor(state) as supervisor:
            with pytest.raises(ManifestError) as refused:
                await supervisor.start(request_for(capsule))

        assert refused.value.code == code


async def test_a_work_directory_that_cannot_be_is_refused(tmp_path: Path, state: Path) -> None:
    capsule = write_capsule(tmp_path / "capsule", ["sh"])
    async with open_supervisor(state) as supervisor:
        with pytest.raises(UsageError, match="cannot be used"):
            await supervisor.start(request_for(capsule, workdir=Path("n" * 300)))


def test_a_state_directory_that_is_no_text_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAPSULE_STATE", "/tmp/\udcff")

    with pytest.raises(StoreError) as refused:
        default_state()

    assert refused.value.code == "E-STO-001"


async def test_nothing_is_no_beginning_of_a_run(tmp_path: Path, state: Path) -> None:
    capsule = write_capsule(tmp_path / "capsule", ["true"])
    async with open_supervisor(state) as supervisor:
        await ended(await supervisor.start(request_for(capsule)))

    async with open_runs(state) as runs:
        for name in ("", "run_"):
            with pytest.raises(UsageError, match="no run is called"):
                runs.find(name)
