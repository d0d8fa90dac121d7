"""The runs of a state directory from outside: found, read, followed and stopped by others."""

from __future__ import annotations

import signal
import statistics
from collections.abc import AsyncGenerator, AsyncIterable
from contextlib import aclosing
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from capsule_runtime import HostError, Outcome, Reason, UsageError
from capsule_runtime.core.chain import Row
from capsule_runtime.host.state import doorbell
from capsule_runtime.host.store import open_store
from capsule_runtime.runs import Runs, open_runs
from capsule_runtime.supervisor import open_supervisor
from support.harness import agent_capsule
from support.logs import Log, assert_well_ended
from support.owners import owner
from support.processes import processes_below, processes_of
from support.stores import NOW, child
from support.supervised import ended, heard, request_for

ONLY_ASYNCIO = pytest.mark.parametrize("anyio_backend", ["asyncio"])


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
async def runs(state: Path) -> AsyncGenerator[Runs]:
    async with open_runs(state) as opened:
        yield opened


def end_of(runs: Runs, run: str) -> tuple[Outcome, Reason]:
    log = Log(tuple(runs.rows(run)))
    assert_well_ended(log)
    assert processes_of(run) == []
    assert log.record.ended is not None
    return log.record.ended.outcome, log.record.ended.reason


async def test_runs_are_found_by_id_by_its_beginning_and_as_the_last(
    tmp_path: Path, state: Path, runs: Runs
) -> None:
    capsule = agent_capsule(tmp_path / "capsule", "never_reads")
    async with open_supervisor(state) as supervisor:
        first = await supervisor.start(request_for(capsule))
        await ended(first)
        last = await supervisor.start(request_for(capsule))
        await ended(last)

    assert runs.find(first.id).id == first.id
    assert runs.find(first.id.removeprefix("run_")).id == first.id
    assert runs.find(first.id[:-1]).id == first.id
    assert runs.find("@last").id == last.id
    assert [row.id for row in runs.recent()] == [last.id, first.id]
    assert [row.id for row in runs.recent(limit=1)] == [last.id]
    assert runs.recent(live_only=True) == []
    with pytest.raises(UsageError, match=f"'run_0' means several runs: {first.id}, {last.id}"):
        runs.find("run_0")


@pytest.mark.parametrize("name", ["@last", "run_00", "run_%", "", "@first"])
async def test_what_means_no_run_is_an_error_of_the_caller(runs: Runs, name: str) -> None:
    with pytest.raises(UsageError) as refused:
        runs.find(name)

    assert refused.value.code == "E-USE-001"


async def test_a_run_is_read_back_whole(tmp_path: Path, state: Path, runs: Runs) -> None:
    capsule = agent_capsule(tmp_path / "capsule", "never_reads")
    async with open_supervisor(state) as supervisor:
        log = await ended(await supervisor.start(request_for(capsule)))
    run = log.final.run

    assert tuple(runs.rows(run)) == log.rows
    assert runs.record(run).final == log.final
    assert (runs.out_folder(run) / "result.txt").read_text() == "I know what you want"
    assert (await runs.wait(run)).final == log.final
    for after in range(len(log.lines) + 2):
        rest = b"".join(row.body for row in runs.rows(run, after))
        assert rest == b"".join(log.lines[after:])


async def test_a_run_is_followed_live_from_another_process(
    tmp_path: Path, state: Path, runs: Runs
) -> None:
    capsule = agent_capsule(tmp_path / "capsule", "trickles", "100", "0.002")
    followed: list[bytes] = []

    async def follow(after: int) -> None:
        async with aclosing(runs.follow(process.run, after)) as rows:
            followed.append(b"".join([row.body async for row in rows]))

    with owner(state, capsule) as process:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(follow, 0)
            tasks.start_soon(follow, 0)
            await anyio.to_thread.run_sync(process.hear, "20 ")
            tasks.start_soon(follow, 0)
        process.hear_all()

    assert followed == [process.log] * 3
    assert end_of(runs, process.run) == (Outcome.COMPLETED, Reason.COMPLETED)


async def test_a_follower_in_another_process_is_hardly_later_than_one_in_its_own(
    tmp_path: Path, state: Path, runs: Runs
) -> None:
    capsule = agent_capsule(tmp_path / "capsule", "trickles", "100", "0.005")
    inside: dict[int, float] = {}
    outside: dict[int, float] = {}

    async def note(rows: AsyncIterable[Row], seen: dict[int, float]) -> None:
        async for row in rows:
            seen[row.last] = anyio.current_time()

    async with open_supervisor(state) as supervisor, anyio.create_task_group() as tasks:
        run = await supervisor.start(request_for(capsule))
        tasks.start_soon(note, run.follow(), inside)
        async with aclosing(runs.follow(run.id)) as rows:
            await note(rows, outside)

    # Without a ring it would look once a second, or with no watch 50 times.
    late = [outside[seq] - inside[seq] for seq in inside.keys() & outside.keys()]
    assert len(late) > 20
    assert statistics.median(late) < 0.01


@pytest.mark.parametrize("after", [1, 3, 50])
async def test_a_follower_in_another_process_may_begin_anywhere(
    tmp_path: Path, state: Path, runs: Runs, after: int
) -> None:
    capsule = agent_capsule(tmp_path / "capsule", "trickles", "100", "0.001")
    with owner(state, capsule) as process:
        async with aclosing(runs.follow(process.run, after)) as rows:
            followed = b"".join([row.body async for row in rows])
        process.hear_all()

    assert followed == b"".join(process.log.splitlines(keepends=True)[after:])


async def test_a_follower_may_leave_in_the_middle(tmp_path: Path, state: Path, runs: Runs) -> None:
    capsule = agent_capsule(tmp_path / "capsule", "polite", "0")
    with owner(state, capsule) as process:
        async with aclosing(runs.follow(process.run)) as rows:
            async for row in rows:
                if b"ask me" in row.body:
                    break
        with anyio.move_on_after(0.05) as waiting:
            await runs.wait(process.run)
        await runs.ask(process.run, Reason.INTERRUPTED)
        await runs.wait(process.run)

    assert waiting.cancelled_caught
    assert end_of(runs, process.run) == (Outcome.CANCELED, Reason.INTERRUPTED)


async def test_another_process_may_interrupt(tmp_path: Path, state: Path, runs: Runs) -> None:
    capsule = agent_capsule(tmp_path / "capsule", "polite", "0", limits={"grace": "1h"})
    with owner(state, capsule) as process:
        process.hear("ask me")
        await runs.ask(process.run, Reason.INTERRUPTED)
        record = await runs.wait(process.run)

    assert not record.kill_started
    assert end_of(runs, process.run) == (Outcome.CANCELED, Reason.INTERRUPTED)


async def test_another_process_may_kill(tmp_path: Path, state: Path, runs: Runs) -> None:
    capsule = agent_capsule(tmp_path / "capsule", "deaf", limits={"grace": "1h"})
    with owner(state, capsule) as process:
        process.hear("cannot hear")
        await runs.ask(process.run, Reason.INTERRUPTED)
        await runs.ask(process.run, Reason.KILLED)
        found = runs.find(process.run)

    assert (found.state, found.outcome, found.reason) == ("ended", "canceled", "killed")
    assert end_of(runs, process.run) == (Outcome.CANCELED, Reason.KILLED)


async def test_a_run_that_has_ended_is_left_as_it_is(
    tmp_path: Path, state: Path, runs: Runs
) -> None:
    capsule = agent_capsule(tmp_path / "capsule", "never_reads")
    async with open_supervisor(state) as supervisor:
        log = await ended(await supervisor.start(request_for(capsule)))
        await runs.ask(log.final.run, Reason.KILLED)

    assert tuple(runs.rows(log.final.run)) == log.rows


async def test_a_request_is_heard_also_when_its_ring_is_lost(
    tmp_path: Path, state: Path, runs: Runs
) -> None:
    capsule = agent_capsule(tmp_path / "capsule", "polite", "0")
    with owner(state, capsule) as process:
        process.hear("ask me")
        supervisor = runs.find(process.run).owner
        assert supervisor is not None
        doorbell(state, supervisor).unlink()
        await runs.ask(process.run, Reason.INTERRUPTED)
        await runs.wait(process.run)

    assert end_of(runs, process.run) == (Outcome.CANCELED, Reason.INTERRUPTED)


async def test_a_verb_that_an_owner_does_not_know_changes_nothing(
    tmp_path: Path, state: Path, runs: Runs
) -> None:
    capsule = agent_capsule(tmp_path / "capsule", "polite", "0")
    async with open_supervisor(state) as supervisor:
        run = await supervisor.start(request_for(capsule))
        await heard(run, "ask me")
        async with open_store(state) as store:
            await store.ask(run.id, "dance", b"", NOW)
            await store.ask(run.id, "completed", b"", NOW)
            await store.ask(run.id, "steer", b"no words", NOW)
        await runs.ask(run.id, Reason.INTERRUPTED)
        await ended(run)

    assert end_of(runs, run.id) == (Outcome.CANCELED, Reason.INTERRUPTED)


async def test_a_kill_goes_round_an_owner_that_stands_still(
    tmp_path: Path, state: Path, runs: Runs
) -> None:
    capsule = agent_capsule(tmp_path / "capsule", "deaf", limits={"grace": "1h"})
    with owner(state, capsule) as process:
        process.hear("cannot hear")
        process.stop()
        await runs.ask(process.run, Reason.KILLED)
        left = processes_of(process.run)
        process.send(signal.SIGCONT)
        await runs.wait(process.run)

    assert left == []
    assert end_of(runs, process.run) == (Outcome.CANCELED, Reason.KILLED)


@ONLY_ASYNCIO
async def test_a_kill_goes_round_an_owner_that_stands_still_in_a_commit(
    tmp_path: Path, state: Path, runs: Runs
) -> None:
    capsule = agent_capsule(tmp_path / "capsule", "deaf", limits={"grace": "1h"})
    with owner(state, capsule) as process:
        process.hear("cannot hear")
        process.stop()
        with child("hold_commit", state) as holder:
            assert holder.hear() == "holding"
            await runs.ask(process.run, Reason.KILLED)
            left = processes_of(process.run)

    assert left == []


async def test_an_interrupt_of_an_owner_that_stands_still_says_so(
    tmp_path: Path, state: Path, runs: Runs
) -> None:
    capsule = agent_capsule(tmp_path / "capsule", "deaf")
    with owner(state, capsule) as process:
        process.hear("cannot hear")
        process.stop()
        with pytest.raises(HostError, match="does not answer") as refused:
            await runs.ask(process.run, Reason.INTERRUPTED)

    assert refused.value.code == "E-HOST-010"


@pytest.mark.parametrize("reason", [Reason.INTERRUPTED, Reason.KILLED])
async def test_asking_a_dead_owner_ends_its_run(
    tmp_path: Path, state: Path, runs: Runs, reason: Reason
) -> None:
    capsule = agent_capsule(tmp_path / "capsule", "deaf")
    with owner(state, capsule) as process:
        process.hear("cannot hear")
        process.kill()
        await runs.ask(process.run, reason)

    assert end_of(runs, process.run) == (Outcome.LOST, Reason.LOST)


async def test_whoever_follows_a_run_sees_its_end_when_its_owner_dies(
    tmp_path: Path, state: Path, runs: Runs
) -> None:
    capsule = agent_capsule(tmp_path / "capsule", "deaf")
    followed = b""
    with owner(state, capsule) as process:
        process.hear("cannot hear")
        async with aclosing(runs.follow(process.run)) as rows:
            async for row in rows:
                followed += row.body
                if b"cannot hear" in row.body:
                    process.kill()

    assert followed == b"".join(row.body for row in runs.rows(process.run))
    assert end_of(runs, process.run) == (Outcome.LOST, Reason.LOST)
    assert processes_below(state) == []


async def test_the_index_is_rebuilt_from_the_logs(tmp_path: Path, state: Path, runs: Runs) -> None:
    capsule = agent_capsule(tmp_path / "capsule", "reports_task")
    async with open_supervisor(state) as supervisor:
        for context in ("one", "two"):
            await ended(await supervisor.start(request_for(capsule, context=context)))
        before = runs.recent()
        count = await runs.rebuild()
        again = await supervisor.start(request_for(capsule, context="one"))
        log = await ended(again)

    assert count == 2
    assert runs.recent()[1:] == before
    assert await runs.check() == []
    assert '"session": "session of' in (log.final.response or "")
