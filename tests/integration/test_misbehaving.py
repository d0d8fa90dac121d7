"""Harnesses that misbehave, as real processes: how each run ends and what its log holds."""

from __future__ import annotations

import shutil
import signal
import stat
import sys
from pathlib import Path

import anyio
import pytest

from capsule_runtime import HarnessError, Outcome, Reason
from capsule_runtime.runs import open_runs
from capsule_runtime.supervisor import open_supervisor
from support.drivers import Fault, install_drivers
from support.harness import (
    MISBEHAVIOURS,
    Misbehaviour,
    agent_capsule,
    misbehaving_capsule,
    shell_capsule,
)
from support.logs import Log
from support.measure import measured
from support.supervised import ended, heard, request_for, undisturbed_neighbour

ONLY_ASYNCIO = pytest.mark.parametrize("anyio_backend", ["asyncio"])
MIB = 1024 * 1024


@pytest.fixture(autouse=True)
def drivers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.path", [install_drivers(tmp_path / "distribution"), *sys.path])


def outcome_of(log: Log) -> tuple[Outcome, Reason]:
    assert log.record.ended is not None
    return log.record.ended.outcome, log.record.ended.reason


def stderr_bytes(state: Path, run: str) -> int:
    return (state / "runs" / run / "stderr.log").stat().st_size


@pytest.mark.parametrize("it", MISBEHAVIOURS, ids=str)
async def test_a_misbehaving_harness_ends_as_it_must_and_disturbs_nobody(
    tmp_path: Path, it: Misbehaviour
) -> None:
    capsule = misbehaving_capsule(tmp_path / "capsule", it)
    async with (
        open_supervisor(tmp_path / "state") as supervisor,
        undisturbed_neighbour(supervisor, tmp_path),
    ):
        log = await ended(await supervisor.start(request_for(capsule)))

    assert outcome_of(log) == (it.outcome, it.reason)
    assert it.message in log.final.message
    assert log.final.response == it.response
    assert it.streamed in (None, log.streamed)
    assert len(log.notes) == len(it.notes)
    assert all(part in note for note, part in zip(log.notes, it.notes, strict=True))
    assert log.record.tree is not None
    assert it.killed in (None, log.record.tree.killed)


async def test_death_by_any_signal_is_a_failure_that_names_it(tmp_path: Path) -> None:
    # The others are ignored, or stop the process, unless it says otherwise.
    harmless = {
        "SIGCHLD",
        "SIGCONT",
        "SIGSTOP",
        "SIGTSTP",
        "SIGTTIN",
        "SIGTTOU",
        "SIGURG",
        "SIGWINCH",
    }
    numbers = [int(number) for number in signal.Signals if number.name not in harmless]
    logs: dict[int, Log] = {}

    async def die(number: int) -> None:
        capsule = agent_capsule(tmp_path / f"capsule-{number}", "dies_by", str(number))
        logs[number] = await ended(await supervisor.start(request_for(capsule)))

    async with (
        open_supervisor(tmp_path / "state") as supervisor,
        undisturbed_neighbour(supervisor, tmp_path),
        anyio.create_task_group() as deaths,
    ):
        for number in numbers:
            deaths.start_soon(die, number)

    assert sorted(logs) == sorted(numbers)
    assert len(logs) > 20
    for number, log in logs.items():
        assert outcome_of(log) == (Outcome.FAILED, Reason.HARNESS_ERROR)
        assert f"the harness was ended by signal {number} before" in log.final.message
        assert log.record.exited is not None
        assert (log.record.exited.code, log.record.exited.signal) == (None, number)


async def test_a_task_that_nobody_reads_is_no_obstacle(tmp_path: Path) -> None:
    capsule = agent_capsule(tmp_path / "capsule", "never_reads")
    request = request_for(capsule, "a task larger than any pipe " * 100_000)
    async with open_supervisor(tmp_path / "state") as supervisor:
        log = await ended(await supervisor.start(request))

    assert outcome_of(log) == (Outcome.COMPLETED, Reason.COMPLETED)
    assert log.final.response == "I know what you want"


async def test_a_large_task_arrives_whole_at_a_harness_that_reads(tmp_path: Path) -> None:
    script = 'printf \'{"type":"turn-end","result":"%s"}\\n\' $(head -n 1 | wc -c)'
    capsule = shell_capsule(tmp_path / "capsule", script)
    words = "a task larger than any pipe " * 100_000
    async with open_supervisor(tmp_path / "state") as supervisor:
        log = await ended(await supervisor.start(request_for(capsule, words)))

    assert len(words) < int(log.final.response or 0) < len(words) + 2000


@pytest.mark.parametrize("how", ["line", "int", "term"])
async def test_a_harness_that_ignores_an_interrupt_is_killed_after_its_grace(
    tmp_path: Path, how: str
) -> None:
    capsule = agent_capsule(
        tmp_path / "capsule", "deaf", limits={"grace": "200ms"}, config={"interrupt": how}
    )
    async with (
        open_supervisor(tmp_path / "state") as supervisor,
        undisturbed_neighbour(supervisor, tmp_path),
    ):
        run = await supervisor.start(request_for(capsule))
        await heard(run, "cannot hear you")
        await run.stop(Reason.INTERRUPTED)
        log = await ended(run)

    assert outcome_of(log) == (Outcome.CANCELED, Reason.INTERRUPTED)
    assert log.final.message.startswith("task canceled; the harness was killed")
    assert log.record.kill_started


@pytest.mark.parametrize("verb", ["result_is_a_link", "out_is_a_link"])
async def test_a_link_does_not_lead_the_result_out_of_its_folder(tmp_path: Path, verb: str) -> None:
    target = tmp_path / "target"
    if verb == "out_is_a_link":
        target.mkdir()
    else:
        target.write_text("precious")
    capsule = agent_capsule(tmp_path / "capsule", verb, str(target))
    async with open_supervisor(tmp_path / "state") as supervisor:
        log = await ended(await supervisor.start(request_for(capsule)))
        async with open_runs(tmp_path / "state") as runs:
            result = runs.out_folder(log.final.run) / "result.txt"

    assert outcome_of(log) == (Outcome.COMPLETED, Reason.COMPLETED)
    if verb == "out_is_a_link":
        assert list(target.iterdir()) == []
        assert "out/result.txt was not written" in log.notes[0]
    else:
        assert target.read_text() == "precious"
        assert stat.S_ISREG(result.lstat().st_mode)
        assert result.read_text() == "through a link"


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("receive", "the driver failed: LookupError: a mistake in receive"),
        ("receive-nothing", "the driver failed: TypeError: "),
        ("receive-nonsense", "the driver failed: TypeError: it said str"),
        ("answer", "the driver failed: LookupError: a mistake in answer"),
    ],
)
async def test_a_driver_that_fails_ends_its_own_run_only(
    tmp_path: Path, fault: Fault, message: str
) -> None:
    capsule = agent_capsule(tmp_path / "capsule", "asks", driver="faulty", config={"fault": fault})
    async with (
        open_supervisor(tmp_path / "state") as supervisor,
        undisturbed_neighbour(supervisor, tmp_path),
    ):
        log = await ended(await supervisor.start(request_for(capsule)))

    assert outcome_of(log) == (Outcome.FAILED, Reason.DRIVER_FAILED)
    assert log.final.message.startswith(f"error[E-RUN-034]: {message}")


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("ended", "the driver failed: LookupError: a mistake in ended"),
        ("ended-nonsense", "the driver failed: TypeError: it said int"),
        ("ended-without-terminal", "the driver named no terminal event for the exit"),
    ],
)
async def test_a_driver_that_cannot_explain_an_exit_has_failed(
    tmp_path: Path, fault: Fault, message: str
) -> None:
    capsule = agent_capsule(
        tmp_path / "capsule", "exits_3", driver="faulty", config={"fault": fault}
    )
    async with open_supervisor(tmp_path / "state") as supervisor:
        log = await ended(await supervisor.start(request_for(capsule)))

    assert outcome_of(log) == (Outcome.FAILED, Reason.DRIVER_FAILED)
    assert log.final.message.startswith(f"error[E-RUN-034]: {message}")


@pytest.mark.parametrize("fault", ["describe", "launch-file-outside", "collect-file-outside"])
async def test_a_driver_that_fails_at_the_start_starts_nothing(
    tmp_path: Path, fault: Fault
) -> None:
    capsule = agent_capsule(tmp_path / "capsule", "asks", driver="faulty", config={"fault": fault})
    async with open_supervisor(tmp_path / "state") as supervisor:
        log = await ended(await supervisor.start(request_for(capsule)))

    assert outcome_of(log) == (Outcome.FAILED, Reason.LAUNCH_FAILED)
    assert log.record.launched is None


async def test_a_driver_that_cannot_plan_is_a_clear_error_and_no_run(tmp_path: Path) -> None:
    capsule = agent_capsule(
        tmp_path / "capsule", "asks", driver="faulty", config={"fault": "launch"}
    )
    async with open_supervisor(tmp_path / "state") as supervisor:
        with pytest.raises(HarnessError, match="the driver 'faulty' cannot plan the launch"):
            await supervisor.start(request_for(capsule))
        async with open_runs(tmp_path / "state") as runs:
            found = runs.recent()

    assert found == []


async def test_a_driver_that_fails_to_interrupt_leaves_no_grace(tmp_path: Path) -> None:
    capsule = agent_capsule(
        tmp_path / "capsule", "deaf", driver="faulty", config={"fault": "interrupt"}
    )
    async with open_supervisor(tmp_path / "state") as supervisor:
        run = await supervisor.start(request_for(capsule))
        await heard(run, "cannot hear you")
        await run.stop(Reason.INTERRUPTED)
        log = await ended(run)

    assert outcome_of(log) == (Outcome.CANCELED, Reason.INTERRUPTED)
    assert log.record.kill_started


async def test_half_a_character_from_a_driver_does_not_break_the_log(tmp_path: Path) -> None:
    capsule = agent_capsule(
        tmp_path / "capsule", "asks", driver="faulty", config={"fault": "receive-half-characters"}
    )
    async with open_supervisor(tmp_path / "state") as supervisor:
        log = await ended(await supervisor.start(request_for(capsule)))

    assert outcome_of(log) == (Outcome.COMPLETED, Reason.COMPLETED)
    assert log.streamed.startswith("half ?")


async def test_what_is_too_much_to_remember_is_noted(tmp_path: Path) -> None:
    capsule = agent_capsule(
        tmp_path / "capsule", "never_reads", driver="faulty", config={"fault": "remember-too-much"}
    )
    async with open_supervisor(tmp_path / "state") as supervisor:
        log = await ended(await supervisor.start(request_for(capsule)))

    assert outcome_of(log) == (Outcome.COMPLETED, Reason.COMPLETED)
    assert log.notes == ["the driver wanted to remember 97.7 KiB: more than 64 KiB"]
    assert log.record.memory is None


async def test_a_file_takes_the_output_of_who_leaves_at_once_where_no_pipe_is_wide_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("capsule_runtime.attempt.WIDE_PIPE_BYTES", 1 << 31)
    size = str(5 * MIB)
    capsule = agent_capsule(tmp_path / "capsule", "leaves_at_once", size, driver="tail-losing")
    async with open_supervisor(tmp_path / "state") as supervisor:
        run = await supervisor.start(request_for(capsule))
        log = await ended(run)

    assert outcome_of(log) == (Outcome.COMPLETED, Reason.COMPLETED)
    assert log.final.response == "fast"
    assert not (tmp_path / "state" / "runs" / run.id / "stdout").exists()


@ONLY_ASYNCIO
@pytest.mark.parametrize(
    ("verb", "arguments", "limits", "outcome", "entries", "note"),
    [
        ("chatty", ("100000", "1000"), {}, "completed", 100_000, ""),
        ("oversize_line", (str(64 * MIB),), {}, "completed", 10, "a line of 64.0 MiB was skipped"),
        ("endless_line", (), {"output": "128MiB"}, "limited", 7, "MiB was skipped"),
        ("fills_stderr", ("1600",), {}, "completed", 7, "84.0 MiB of stderr were dropped"),
        ("asks_and_never_reads", ("40000",), {}, "completed", 40_000, "it does not read"),
    ],
    ids=["chatty", "long-line", "endless-line", "stderr", "never-reads"],
)
async def test_what_is_large_costs_little_memory(
    tmp_path: Path,
    verb: str,
    arguments: tuple[str, ...],
    limits: dict[str, str],
    outcome: str,
    entries: int,
    note: str,
) -> None:
    capsule = agent_capsule(tmp_path / "capsule", verb, *arguments, limits=limits)

    told = await measured(tmp_path / "state", capsule)

    assert told.outcome == outcome
    assert told.last_seq >= entries
    assert told.peak_growth_bytes < 64 * MIB
    assert note in "".join(told.notes)
    # Of a long line it is told how long it was, and how it began.
    assert len(told.notes) == (2 if verb == "oversize_line" else 1 if note else 0)
    state = tmp_path / "state"
    assert stderr_bytes(state, told.run) <= 16 * MIB
    shutil.rmtree(state)  # pytest would keep it for three more sessions
