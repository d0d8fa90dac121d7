"""The library as a program uses it: by public names alone, on both event loops."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from capsule_runtime import (
    Ceilings,
    Exit,
    Frame,
    Outcome,
    Reason,
    RunHandle,
    RunRequest,
    StatusFrame,
    Supervisor,
    TextDelta,
    TextFrame,
    ToolCall,
    ToolResult,
    TurnEnd,
    Usage,
    UsageError,
    open_supervisor,
)
from capsule_runtime.testing import Silence, UntilInterrupted, in_memory, recorded_capsule
from support.harness import agent_capsule
from support.owners import owner
from support.processes import processes_below, processes_of

HELLO = (TextDelta("hello"), TurnEnd("hello"))
POLITE = (TextDelta("ask me"), UntilInterrupted(), TurnEnd("stopped"))
DEAF = (TextDelta("not a word"), Silence())


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


def request(capsule: Path) -> RunRequest:
    return RunRequest.of(capsule, "do it", workdir=capsule.parent, containment="advisory")


async def all_frames(run: RunHandle, after: int = 0) -> list[Frame]:
    return [frame async for frame in run.frames(after)]


async def first_text(run: RunHandle) -> TextFrame:
    async for frame in run.frames():
        if isinstance(frame, TextFrame):
            return frame
    raise AssertionError(f"{run.id} said nothing")


def finals(frames: list[Frame]) -> list[Frame]:
    return [frame for frame in frames if isinstance(frame, StatusFrame) and frame.final]


# One run


async def test_a_run_gives_its_frames_and_then_its_result(tmp_path: Path, state: Path) -> None:
    tool = (ToolCall("c1", "ls", {"path": "."}), ToolResult("c1", content="a b"))
    usage = Usage("p:m", input_tokens=7, output_tokens=5, cost_usd=0.25)
    capsule = recorded_capsule(tmp_path / "capsule", *tool, *HELLO[:1], usage, *HELLO[1:])
    async with open_supervisor(state) as supervisor:
        run = await supervisor.start(request(capsule))
        frames = await all_frames(run)
        result = await run.wait()

    kinds = [type(frame).__name__ for frame in frames]
    assert kinds == "StatusFrame ArtifactFrame StatusFrame TextFrame TextFrame StatusFrame".split()
    assert finals(frames) == frames[-1:]
    assert (result.run, result.outcome, result.reason) == (run.id, "completed", "completed")
    assert (result.message, result.response) == ("session ended", "hello")
    assert (result.turns, result.tool_calls, result.tokens) == (1, 1, 12)
    assert (result.harness_microusd, result.harness_is_partial) == (250_000, False)
    assert (result.out / "result.txt").read_text() == "hello"
    assert result.created_at < result.ended_at


async def test_a_program_bounds_a_run_and_reads_what_it_used(tmp_path: Path, state: Path) -> None:
    used = Usage(model="anthropic:claude-3-haiku", input_tokens=700, output_tokens=300)
    capsule = recorded_capsule(tmp_path / "capsule", used, UntilInterrupted(), TurnEnd("no more"))
    wish = RunRequest.of(
        capsule,
        "do it",
        workdir=tmp_path,
        containment="advisory",
        ceilings=Ceilings(tokens=1000),
    )
    async with open_supervisor(state) as supervisor:
        result = await (await supervisor.start(wish)).wait()

    assert (result.outcome, result.reason) == (Outcome.REFUSED, Reason.TOKENS)
    assert "tokens ceiling of 1000" in result.message
    assert result.tokens == 1000
    assert [call.model for call in result.usage.calls] == [used.model]
    assert (result.harness_microusd, result.harness_is_partial) == (None, False)


async def test_a_reader_may_begin_behind_any_frame_and_be_late(tmp_path: Path, state: Path) -> None:
    capsule = recorded_capsule(tmp_path / "capsule", *[TextDelta("x")] * 300, TurnEnd("x" * 300))
    async with open_supervisor(state) as supervisor:
        run = await supervisor.start(request(capsule))
        slow = run.frames()
        first = await anext(slow)
        await run.wait()
        rest = [frame async for frame in slow]
        frames = await all_frames(run)
        behind = {frame.seq: await all_frames(run, frame.seq) for frame in frames[::37]}

    assert [first, *rest] == frames
    assert [frame.prev for frame in frames] == [0, *(frame.seq for frame in frames[:-1])]
    assert behind == {frame.seq: frames[frames.index(frame) + 1 :] for frame in frames[::37]}


async def test_a_reader_that_leaves_owes_nothing(tmp_path: Path, state: Path) -> None:
    capsule = recorded_capsule(tmp_path / "capsule", *POLITE)
    async with open_supervisor(state) as owner, open_supervisor(state) as other:
        run = await owner.start(request(capsule))
        for handle in (run, other.get(run.id)):
            async for _ in handle.frames():
                break
        await run.interrupt()
        result = await run.wait()

    assert result.reason is Reason.INTERRUPTED


async def test_an_interrupt_lets_the_harness_end_its_turn(tmp_path: Path, state: Path) -> None:
    capsule = recorded_capsule(tmp_path / "capsule", *POLITE)
    async with open_supervisor(state) as supervisor:
        run = await supervisor.start(request(capsule))
        await first_text(run)
        await run.interrupt()
        result = await run.wait()

    assert (result.outcome, result.reason) == (Outcome.CANCELED, Reason.INTERRUPTED)
    assert (result.out / "result.txt").read_text() == "stopped"


async def test_a_kill_returns_once_the_end_is_on_record(tmp_path: Path, state: Path) -> None:
    capsule = recorded_capsule(tmp_path / "capsule", *DEAF)
    async with open_supervisor(state) as supervisor:
        run = await supervisor.start(request(capsule))
        await first_text(run)
        await run.kill()
        (summary,) = supervisor.list()

        assert (summary.run, summary.state, summary.reason) == (run.id, "ended", Reason.KILLED)
        assert processes_of(run.id) == []


async def test_what_comes_too_late_changes_nothing(tmp_path: Path, state: Path) -> None:
    capsule = recorded_capsule(tmp_path / "capsule", *HELLO)
    async with open_supervisor(state) as supervisor:
        run = await supervisor.start(request(capsule))
        result = await run.wait()
        for handle in (run, supervisor.get(run.id)):
            await handle.interrupt()
            await handle.kill()

            assert await handle.wait() == result


# Runs of others: the same calls


async def test_a_run_of_another_process_is_followed_and_stopped_by_the_same_calls(
    tmp_path: Path, state: Path
) -> None:
    capsule = agent_capsule(tmp_path / "capsule", "polite", "0")
    with owner(state, capsule) as process:
        async with open_supervisor(state) as supervisor:
            run = supervisor.get(process.run)
            await first_text(run)
            live = supervisor.list(live_only=True)
            await run.interrupt()
            frames = await all_frames(run)
            result = await run.wait()

    assert [(row.run, row.state, row.outcome) for row in live] == [(run.id, "running", None)]
    assert finals(frames) == frames[-1:]
    assert (result.outcome, result.reason) == (Outcome.CANCELED, Reason.INTERRUPTED)


async def test_a_run_of_another_process_is_killed(tmp_path: Path, state: Path) -> None:
    capsule = agent_capsule(tmp_path / "capsule", "deaf")
    with owner(state, capsule) as process:
        async with open_supervisor(state) as supervisor:
            run = supervisor.get(process.run)
            await first_text(run)
            await run.kill()

            assert processes_of(run.id) == []
            assert (await run.wait()).reason is Reason.KILLED


async def test_a_run_whose_owner_dies_ends_under_whoever_follows_it(
    tmp_path: Path, state: Path
) -> None:
    capsule = agent_capsule(tmp_path / "capsule", "deaf")
    with owner(state, capsule) as process:
        async with open_supervisor(state) as supervisor:
            run = supervisor.get(process.run)
            await first_text(run)
            process.kill()
            result = await run.wait()

    assert result.outcome is Outcome.LOST
    assert processes_of(run.id) == []


async def test_supervisors_of_one_program_stop_and_follow_each_others_runs(
    tmp_path: Path, state: Path
) -> None:
    capsule = recorded_capsule(tmp_path / "capsule", *POLITE)
    async with open_supervisor(state) as one, open_supervisor(state) as other:
        own = [await supervisor.start(request(capsule)) for supervisor in (one, other)]
        for run in own:
            await first_text(run)
        await other.get(own[0].id).interrupt()
        await one.get(own[1].id).kill()
        results = [await one.get(run.id).wait() for run in own]

        assert results == [await other.get(run.id).wait() for run in own]
    assert [result.reason for result in results] == [Reason.INTERRUPTED, Reason.KILLED]


async def test_a_run_that_ended_long_ago_is_read_like_any_other(
    tmp_path: Path, state: Path
) -> None:
    capsule = recorded_capsule(tmp_path / "capsule", *HELLO)
    async with open_supervisor(state) as supervisor:
        run = await supervisor.start(request(capsule))
        frames, result = await all_frames(run), await run.wait()
    async with open_supervisor(state) as supervisor:
        known = supervisor.get(run.id)

        assert await all_frames(known) == frames
        assert await known.wait() == result
        assert [row.run for row in supervisor.list()] == [run.id]
        assert supervisor.list(live_only=True) == ()


async def test_a_run_is_got_by_its_whole_id_only(tmp_path: Path, state: Path) -> None:
    capsule = recorded_capsule(tmp_path / "capsule", *HELLO)
    async with open_supervisor(state) as supervisor:
        run = await supervisor.start(request(capsule))
        await run.wait()
        for name in (run.id[:-1], run.id.removeprefix("run_"), "@last", "", "run_0"):
            with pytest.raises(UsageError) as refused:
                supervisor.get(name)

            assert refused.value.code == "E-USE-001"


# A guest in its host's process


async def test_a_supervisor_changes_nothing_of_its_process(tmp_path: Path, state: Path) -> None:
    def seen() -> object:
        from os import environ, getcwd, umask

        mask = umask(0o22)
        umask(mask)
        handlers = [signal.getsignal(number) for number in signal.valid_signals()]
        return dict(environ), getcwd(), mask, handlers, sys.excepthook, threading.excepthook

    capsule = recorded_capsule(tmp_path / "capsule", *POLITE)
    before = seen()
    async with open_supervisor(state) as supervisor:
        run = await supervisor.start(request(capsule))
        await first_text(run)
        during = seen()

    assert during == before
    assert seen() == before
    assert processes_below(state) == []


@pytest.mark.parametrize("leaving", [SystemExit(3), KeyboardInterrupt(), ValueError("no")])
async def test_what_ends_a_program_in_the_block_comes_out_as_it_is(
    state: Path, leaving: BaseException
) -> None:
    with pytest.raises(type(leaving)) as raised:
        async with open_supervisor(state):
            raise leaving

    assert raised.value is leaving


async def test_a_supervisor_works_in_a_thread_of_its_own(tmp_path: Path) -> None:
    """Signal handlers, for one, can be set in the main thread alone."""
    capsule = recorded_capsule(tmp_path / "capsule", *HELLO)
    told: list[str | None] = []

    async def work(state: Path) -> None:
        async with open_supervisor(state) as supervisor:
            run = await supervisor.start(request(capsule))
            told.append((await run.wait()).response)

    def program(number: int) -> None:
        backend = ("asyncio", "trio")[number]
        anyio.run(work, tmp_path / f"state-{number}", backend=backend)

    threads = [threading.Thread(target=program, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        await anyio.to_thread.run_sync(thread.join)

    assert told == ["hello", "hello"]


async def test_a_supervisor_that_is_closed_says_so(tmp_path: Path, state: Path) -> None:
    capsule = recorded_capsule(tmp_path / "capsule", *HELLO)
    async with open_supervisor(state) as supervisor:
        run = await supervisor.start(request(capsule))
        known = await _ended_handle(supervisor, run)

    assert (await run.wait()).response == "hello"
    calls: list[Callable[[], object]] = [supervisor.list, lambda: supervisor.get("run_0")]
    for call in calls:
        with pytest.raises(UsageError, match="is closed"):
            call()
    with pytest.raises(UsageError, match="is closed"):
        await supervisor.start(request(capsule))
    with pytest.raises(UsageError, match="is closed"):
        await all_frames(known)


async def _ended_handle(supervisor: Supervisor, run: RunHandle) -> RunHandle:
    await run.wait()
    async for frame in run.frames():
        if isinstance(frame, StatusFrame) and frame.final:
            break
    while (known := supervisor.get(run.id)) is run:  # its task has yet to leave
        await anyio.lowlevel.checkpoint()
    return known


# What ships for tests


@pytest.mark.parametrize(
    ("exit", "message"),
    [
        (Exit(3, None, b"no model for me"), "its stderr ends: no model for me"),
        (Exit(None, signal.SIGKILL), "was ended by signal 9"),
        (Exit(None, signal.SIGSEGV), "was ended by signal 11"),
        (Exit(0, None), "exited with code 0 before it ended its turn"),
    ],
    ids=str,
)
async def test_a_recorded_agent_ends_as_it_was_told(
    tmp_path: Path, exit: Exit, message: str
) -> None:
    capsule = recorded_capsule(tmp_path / "capsule", TextDelta("on my "), exit=exit)
    with in_memory() as state:
        async with open_supervisor(state) as supervisor:
            result = await (await supervisor.start(request(capsule))).wait()

    assert result.outcome is Outcome.FAILED
    assert message in result.message


async def test_a_recorded_stdout_is_played_as_it_is(tmp_path: Path) -> None:
    stdout = b'{"type":"text-delta","text":"a"}\nno event\n{"type":"turn-end","result":"a"}\n'
    capsule = recorded_capsule(tmp_path / "capsule", stdout)
    with in_memory() as state:
        async with open_supervisor(state) as supervisor:
            result = await (await supervisor.start(request(capsule))).wait()

    assert result.response == "a"


async def test_a_recorded_silence_reaches_a_limit(tmp_path: Path) -> None:
    limits = {"idle.first_token": "200ms", "grace": "10ms"}
    capsule = recorded_capsule(tmp_path / "capsule", Silence(), limits=limits)
    with in_memory() as state:
        async with open_supervisor(state) as supervisor:
            result = await (await supervisor.start(request(capsule))).wait()

    assert (result.outcome, result.reason) == (Outcome.TIMED_OUT, Reason.IDLE)


async def test_a_state_in_memory_is_real_and_leaves_nothing(tmp_path: Path) -> None:
    capsule = recorded_capsule(tmp_path / "capsule", *HELLO)
    with in_memory() as state:
        async with open_supervisor(state) as supervisor:
            run = await supervisor.start(request(capsule))
            await run.wait()
        command = [sys.executable, "-m", "capsule_runtime", "show", run.id, "--json"]
        shown = await anyio.run_process(command, env={"CAPSULE_STATE": str(state)})

    assert b'"completed"' in shown.stdout
    assert not state.parent.exists()
