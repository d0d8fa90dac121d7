"""Runs whose owner died: buried, then ended once, by whoever comes first."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from capsule_runtime import Outcome, Reason
from capsule_runtime.core.facts import Recovered
from capsule_runtime.runs import open_runs
from capsule_runtime.supervisor import open_supervisor
from support.harness import agent_capsule
from support.logs import Log, assert_well_ended
from support.owners import owner
from support.processes import harnesses_below, processes_below, wait_gone
from support.supervised import CHILD, ended, heard, intrude, request_for


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


async def log_of(state: Path, run: str) -> Log:
    async with open_runs(state) as runs:
        return Log(tuple(runs.rows(run)))


def outcome_of(log: Log) -> tuple[Outcome, Reason]:
    assert_well_ended(log)
    assert log.record.ended is not None
    return log.record.ended.outcome, log.record.ended.reason


def killed_together(state: Path, capsule: Path, count: int) -> list[str]:
    """Have *count* owners killed when all have a run, so that none recovers from another."""
    with ExitStack() as owners:
        processes = [owners.enter_context(owner(state, capsule)) for _ in range(count)]
        for process in processes:
            process.hear("cannot hear")
        for process in processes:
            process.kill()
    return [process.run for process in processes]


@contextmanager
def recoverer(state: Path) -> Generator[subprocess.Popen[str]]:
    """Have another process get ready to recover."""
    command = [sys.executable, str(CHILD), "recover", str(state)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


async def test_the_next_supervisor_ends_the_run_of_a_dead_one(tmp_path: Path, state: Path) -> None:
    capsule = agent_capsule(tmp_path / "capsule", "deaf")
    with owner(state, capsule) as process:
        process.hear("cannot hear")
        process.kill()
    before = await log_of(state, process.run)
    async with open_supervisor(state) as supervisor:
        after = await log_of(state, process.run)
        left = harnesses_below(state)
    async with open_runs(state) as runs:
        found, problems = runs.find(process.run), await runs.check()

    assert after.body.startswith(before.body)
    assert before.body.startswith(process.log)
    assert outcome_of(after) == (Outcome.LOST, Reason.LOST)
    assert after.final.message == "the supervisor died while the run was going on"
    assert after.streamed == "cannot hear you"
    assert [fact.by for fact in after.of(Recovered)] == [supervisor.id]
    assert left == []
    assert (found.state, found.outcome) == ("ended", "lost")
    assert problems == []
    assert os.listdir(state / "supervisors") == []


async def test_an_answer_that_is_on_record_completes_the_run(tmp_path: Path, state: Path) -> None:
    limits = {"grace": "1h"}
    capsule = agent_capsule(tmp_path / "capsule", "lingers", "end", limits=limits)
    with owner(state, capsule) as process:
        process.hear('"turn-end"')
        process.kill()
    async with open_runs(state) as runs:
        recovered = await runs.recover()
        again = await runs.recover()
        result = (runs.out_folder(process.run) / "result.txt").read_text()

    log = await log_of(state, process.run)
    assert (recovered, again) == ([process.run], [])
    assert outcome_of(log) == (Outcome.COMPLETED, Reason.COMPLETED)
    assert log.final.response == result == "done, but still here"


async def test_a_failure_that_is_on_record_stays_the_reason(tmp_path: Path, state: Path) -> None:
    limits = {"grace": "1h"}
    capsule = agent_capsule(tmp_path / "capsule", "lingers", "quota", limits=limits)
    with owner(state, capsule) as process:
        process.hear('"turn-failed"')
        process.kill()
    async with open_runs(state) as runs:
        await runs.recover()

    log = await log_of(state, process.run)
    assert outcome_of(log) == (Outcome.FAILED, Reason.QUOTA)
    assert log.final.message == "error[E-RUN-033]: no more"


@pytest.mark.parametrize("reason", [Reason.INTERRUPTED, Reason.TERMINATED])
async def test_a_stop_that_is_on_record_stays_the_reason(
    tmp_path: Path, state: Path, reason: Reason
) -> None:
    capsule = agent_capsule(tmp_path / "capsule", "deaf", limits={"grace": "1h"})
    with owner(state, capsule) as process:
        process.hear("cannot hear")
        async with open_runs(state) as runs:
            await runs.ask(process.run, reason)
            process.hear('"stop-asked"')
            process.kill()
            await runs.recover()

    log = await log_of(state, process.run)
    assert outcome_of(log) == (Outcome.CANCELED, reason)
    assert (log.final.message, log.final.response) == ("task canceled", None)


async def test_several_who_recover_at_once_write_one_end_each(tmp_path: Path, state: Path) -> None:
    capsule = agent_capsule(tmp_path / "capsule", "deaf")
    dead = killed_together(state, capsule, 3)
    with recoverer(state) as one, recoverer(state) as two, recoverer(state) as three:
        racers = (one, two, three)
        for racer in racers:
            assert racer.stdin is not None
            racer.stdin.write("\n")
            racer.stdin.flush()
        ended_by = [racer.communicate()[0].split() for racer in racers]

    # Whoever finds an owner's place taken leaves its runs to the other, and may be done before.
    assert sorted(run for runs in ended_by for run in runs) == sorted(dead)
    logs = [await log_of(state, run) for run in dead]
    assert {outcome_of(log) for log in logs} == {(Outcome.LOST, Reason.LOST)}
    assert [len(log.of(Recovered)) for log in logs] == [1, 1, 1]


async def test_a_run_whose_owner_lives_is_left_alone(tmp_path: Path, state: Path) -> None:
    capsule = agent_capsule(tmp_path / "capsule", "polite", "0")
    async with open_supervisor(state) as supervisor, open_runs(state) as runs:
        run = await supervisor.start(request_for(capsule))
        await heard(run, "ask me")
        recovered = await runs.recover()
        await run.stop(Reason.INTERRUPTED)
        log = await ended(run)

    assert recovered == []
    assert outcome_of(log) == (Outcome.CANCELED, Reason.INTERRUPTED)


async def test_a_context_is_free_again_and_has_kept_its_session(
    tmp_path: Path, state: Path
) -> None:
    limits = {"grace": "1h"}
    capsule = agent_capsule(tmp_path / "capsule", "lingers", "end", limits=limits)
    with owner(state, capsule, "talk") as process:
        process.hear('"turn-end"')
        process.kill()
    reporting = agent_capsule(tmp_path / "reporting", "reports_task")
    async with open_supervisor(state) as supervisor:
        log = await ended(await supervisor.start(request_for(reporting, context="talk")))

    assert '"session": "to be kept"' in (log.final.response or "")


def stop_all(state: Path, but: set[int]) -> set[int]:
    """Stop all processes of *state* but some, also what they fork meanwhile; return them."""
    stopped: set[int] = set()
    while running := set(processes_below(state)) - but - stopped:
        for pid in running:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        stopped |= running
    return stopped


async def test_a_tree_that_is_still_being_buried_is_waited_for(
    tmp_path: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("capsule_runtime.recovery.BURIAL_SECONDS", 0.1)
    capsule = agent_capsule(tmp_path / "capsule", "deaf")
    with owner(state, capsule) as process:
        process.hear("cannot hear")
        wardens = stop_all(state, {*harnesses_below(state), process.process.pid})
        process.kill()
        async with open_runs(state) as runs:
            too_early = await runs.recover()
            for pid in wardens:
                with suppress(ProcessLookupError):  # the first that goes on ends the others
                    os.kill(pid, signal.SIGCONT)
            for pid in wardens:
                wait_gone(pid)
            recovered = await runs.recover()

    assert wardens
    assert (too_early, recovered) == ([], [process.run])
    assert outcome_of(await log_of(state, process.run)) == (Outcome.LOST, Reason.LOST)


@pytest.mark.parametrize("damage", ["unknown entry", "changed byte"])
async def test_a_log_that_cannot_be_read_keeps_no_other_from_its_end(
    tmp_path: Path, state: Path, damage: str
) -> None:
    capsule = agent_capsule(tmp_path / "capsule", "deaf")
    dead = killed_together(state, capsule, 2)
    if damage == "unknown entry":
        await intrude(state, dead[0])
    else:
        change_a_byte(state, dead[0])
    async with open_runs(state) as runs:
        recovered = await runs.recover()
        live = [row.id for row in runs.recent(live_only=True)]
    async with open_supervisor(state) as supervisor:
        fine = agent_capsule(tmp_path / "fine", "never_reads")
        log = await ended(await supervisor.start(request_for(fine)))

    assert recovered == [dead[1]]
    assert live == [dead[0]]
    assert log.record.outcome is Outcome.COMPLETED


def change_a_byte(state: Path, run: str) -> None:
    database = sqlite3.connect(state / "capsule.db")
    with database:
        database.execute(
            "update log set body = cast(replace(body, 'cannot', 'canned') as blob) where run ="
            " (select no from runs where id = ?)",
            (run,),
        )
    database.close()


async def test_what_dead_supervisors_left_beside_their_runs_is_removed(
    tmp_path: Path, state: Path
) -> None:
    killed_together(state, agent_capsule(tmp_path / "capsule", "deaf"), 2)
    async with open_supervisor(state):
        pass

    async with open_supervisor(state) as supervisor:
        left = {path.name.split(".")[0] for path in (state / "supervisors").iterdir()}

    assert left == {supervisor.id}
    assert list((state / "supervisors").iterdir()) == []
