"""What the harness says, as entries of the log, and what a silent one is waiting for."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from capsule_runtime import (
    Activity,
    ArtifactFrame,
    Dispatch,
    Event,
    Exit,
    FailureKind,
    Handoff,
    Note,
    Permission,
    Reason,
    Refused,
    Retrying,
    Session,
    Sleep,
    StatusFrame,
    Suspend,
    Text,
    TextDelta,
    Thinking,
    ThinkingDelta,
    ToolCall,
    ToolResult,
    TurnEnd,
    TurnFailed,
    Usage,
)
from capsule_runtime.core.actions import Action, Burial, Progress, Reply
from capsule_runtime.core.conversation import Phase
from capsule_runtime.core.facts import (
    Ended,
    Exited,
    Launched,
    Noted,
    Recovered,
    Said,
    TreeEmpty,
)
from capsule_runtime.core.journal import Append, Moment, Position
from capsule_runtime.core.run import Run
from support.script import CONTEXT, PID, RUN, Script, at, entries_of, is_sound

CALL = ToolCall("c1", "list", {"path": "."})
RESULT = ToolResult("c1", content="two files")
FAILED = TurnFailed(FailureKind.QUOTA, "no money")

# What is written.


def test_the_launch_is_a_fact() -> None:
    (fact,) = Script().facts

    assert isinstance(fact, Launched)
    assert fact.pid == PID


def test_the_exit_is_a_fact_with_its_code_or_signal() -> None:
    script = Script()

    script.end(exit=Exit(None, 9), killed=3)

    exited = next(fact for fact in script.facts if isinstance(fact, Exited))
    tree = next(fact for fact in script.facts if isinstance(fact, TreeEmpty))
    assert (exited.code, exited.signal) == (None, 9)
    assert (tree.killed, tree.left, tree.burial_ms) == (3, 0, 3)


@pytest.mark.parametrize(
    "event",
    [
        Session("s"),
        Text("a"),
        Thinking("a", "m1"),
        CALL,
        Usage("m", 1),
        Retrying(1, "busy"),
        Activity("reading"),
        Permission("p", "x"),
        TurnEnd("r"),
        FAILED,
    ],
    ids=lambda event: type(event).__name__,
)
def test_what_is_no_frame_is_a_fact(event: Event) -> None:
    script = Script()

    script.say(event)

    assert [fact.event for fact in script.facts if isinstance(fact, Said)] == [event]


@pytest.mark.parametrize(
    "event", [TextDelta("a"), ThinkingDelta("a"), Thinking("a")], ids=lambda e: type(e).__name__
)
def test_what_is_whole_in_a_frame_is_not_a_fact_as_well(event: Event) -> None:
    script = Script()

    script.say(event)

    assert [type(fact) for fact in script.facts] == [Launched]


def test_a_note_of_the_harness_is_a_note() -> None:
    script = Script()

    script.say(Note("hello"))
    script.note("from the host")

    assert [fact.text for fact in script.facts if isinstance(fact, Noted)] == [
        "hello",
        "from the host",
    ]


def test_the_artifact_has_the_calls_name_and_the_runtimes_measure() -> None:
    script = Script()
    script.now = 10.0
    script.say(CALL)
    script.now = 10.2504

    script.say(ToolResult("c1", "another name", {"n": [1]}, True, 2))

    frame = script.frames[-1]
    assert isinstance(frame, ArtifactFrame)
    assert (frame.tool_name, frame.tool_call_id, frame.content) == ("list", "c1", {"n": [1]})
    assert (frame.is_error, frame.exit_code, frame.duration_ms) == (True, 2, 250)
    assert frame.truncated is False


def test_what_a_result_does_not_say_is_null_and_no_error() -> None:
    script = Script()

    script.say(CALL, ToolResult("c1"))

    frame = script.frames[-1]
    assert isinstance(frame, ArtifactFrame)
    assert (frame.content, frame.is_error, frame.exit_code) == (None, False, None)


def test_a_call_without_its_result_is_noted_at_the_end() -> None:
    script = Script()
    script.say(CALL)

    script.end()

    notes = [fact.text for fact in script.facts if isinstance(fact, Noted)]
    assert notes == ["no result for the tool call 'c1' of 'list'"]


def test_a_reused_call_id_belongs_to_the_later_call() -> None:
    script = Script()

    script.say(CALL, ToolCall("c1", "other"), RESULT)

    frame = script.frames[-1]
    assert isinstance(frame, ArtifactFrame)
    assert frame.tool_name == "other"


def test_the_end_counts_turns_and_tool_calls() -> None:
    script = Script()
    script.say(CALL, RESULT, Text("a"), TurnEnd("a"))

    script.end()

    ended = next(fact for fact in script.facts if isinstance(fact, Ended))
    assert (ended.turns, ended.tool_calls) == (2, 1)


def test_the_harnesss_own_session_is_known() -> None:
    script = Script(Progress(session="old"))

    assert script.run.session == "old"
    script.say(Session("new"))
    assert script.run.session == "new"


def test_the_host_may_write_facts_of_its_own() -> None:
    script = Script(launched=False)

    script.record(lambda seq, when, run: Recovered(seq, when, run, "sup_1"))

    assert script.facts == [Recovered(1, at().at, RUN, "sup_1")]


def test_what_one_batch_gives_is_one_write() -> None:
    script = Script()

    actions = script.say(Text("a"), TextDelta("b"), TextDelta("c"), CALL, RESULT)

    appends = [action for action in actions if isinstance(action, Append)]
    assert all(map(is_sound, appends))
    assert [len(append.entries) for append in appends] == [7]


def test_every_entry_carries_the_moment_at_which_it_was_decided() -> None:
    run = Run(RUN, CONTEXT)
    decisions: list[Callable[[Moment], list[Action]]] = [
        lambda now: run.record(lambda seq, at, id: Recovered(seq, at, id, "sup_1"), now),
        lambda now: run.launched(PID, now),
        lambda now: run.receive([Text("a"), TextDelta("b")], now),
        lambda now: run.note("seen", now),
        lambda now: run.ask_stop(Reason.WALL, "too long", now),
        run.grace_over,
        lambda now: run.end(Exit(0, None), Burial(0, 0, 1), [TurnEnd("r")], now),
    ]

    for number, decide in enumerate(decisions):
        entries = entries_of(decide(Moment(f"moment {number}", 0.0)))
        assert {entry.at for entry in entries} == {f"moment {number}"}


def test_a_failure_carries_its_moment_too() -> None:
    actions = Run(RUN, CONTEXT).fail(Reason.LOST, "gone", Moment("then", 0.0))

    assert {entry.at for entry in entries_of(actions)} == {"then"}


def test_a_run_writes_on_where_its_log_ends() -> None:
    run = Run(RUN, CONTEXT, Progress(position=Position(seq=41, frame=40)))

    (append,) = run.fail(Reason.LOST, "gone", at())

    assert isinstance(append, Append)
    final = append.entries[-1]
    assert isinstance(final, StatusFrame)
    assert (final.seq, final.prev) == (44, 40)
    assert run.position == Position(44, 44)


# Requests of the harness.


@pytest.mark.parametrize(
    ("event", "code", "words"),
    [
        (Permission("p", "rm"), "E-RUN-040", "permission to use rm is denied"),
        (Suspend("p", "why", {}), "E-RUN-041", "suspend"),
        (Sleep("p", "2026-01-02T03:04:05Z"), "E-RUN-041", "sleep"),
        (Dispatch("p", "job"), "E-RUN-041", "dispatch"),
        (Handoff("p", "other"), "E-RUN-041", "handoff"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_request_that_cannot_be_met_is_refused_at_once(
    event: Event, code: str, words: str
) -> None:
    script = Script()

    record, reply = script.say(event)

    assert isinstance(record, Append)
    assert isinstance(reply, Reply)
    assert reply.id == "p"
    assert isinstance(reply.decision, Refused)
    assert reply.decision.code == code
    assert words in reply.decision.message


# What a silent run waits for.


@pytest.mark.parametrize(
    ("events", "phase"),
    [
        ([], Phase.FIRST_TOKEN),
        ([Session("s"), Usage("m"), Activity("a"), Note("n")], Phase.FIRST_TOKEN),
        ([TextDelta("a")], Phase.STREAMING),
        ([Thinking("a")], Phase.STREAMING),
        ([Text("a")], Phase.STREAMING),
        ([CALL], Phase.TOOL),
        ([CALL, TextDelta("a")], Phase.TOOL),
        ([CALL, ToolCall("c2", "x"), RESULT], Phase.TOOL),
        ([CALL, RESULT], Phase.FIRST_TOKEN),
        ([CALL, RESULT, TextDelta("a")], Phase.STREAMING),
        ([Retrying(1, "busy")], Phase.RATE_LIMITED),
        ([CALL, Retrying(1, "busy")], Phase.RATE_LIMITED),
        ([Retrying(1, "busy"), TextDelta("a")], Phase.STREAMING),
    ],
    ids=lambda value: value.name if isinstance(value, Phase) else None,
)
def test_the_idle_limit_knows_the_phase(events: list[Event], phase: Phase) -> None:
    script = Script()

    script.say(*events)

    assert script.run.phase is phase


def test_an_empty_breath_changes_no_phase() -> None:
    script = Script()
    script.say(Retrying(1, "busy"))

    script.say()

    assert script.run.phase is Phase.RATE_LIMITED
