"""The frames of a run's text: every rule of the stream, one by one."""

from __future__ import annotations

import pytest

from capsule_runtime import (
    Activity,
    Dispatch,
    Event,
    FailureKind,
    Handoff,
    Note,
    Permission,
    Reason,
    Retrying,
    Session,
    Sleep,
    Suspend,
    Text,
    TextDelta,
    TextFrame,
    Thinking,
    ThinkingDelta,
    ThinkingFrame,
    ToolCall,
    ToolResult,
    TurnEnd,
    TurnFailed,
    Usage,
)
from capsule_runtime.core.actions import Progress, WriteResult
from capsule_runtime.core.facts import Noted, Said
from support.script import GONE, Script

CALL = ToolCall("c1", "list")
RESULT = ToolResult("c1", content="two files")
FAILED = TurnFailed(FailureKind.OTHER, "no")
REMOVAL = ("text", "", True)
WORKING_1 = ("working", "inference turn 1")
WORKING_2 = ("working", "inference turn 2")

OPENERS: list[Event] = [
    TextDelta("a"),
    Text("a"),
    ThinkingDelta("a"),
    Thinking("a"),
    CALL,
]
SILENT: list[Event] = [
    Session("s"),
    Usage("m", 1),
    Activity("reading"),
    Note("n"),
    Retrying(1, "busy"),
    Permission("p", "rm"),
    Suspend("p", "why", {}),
    Sleep("p", "2026-01-02T03:04:05Z"),
    Dispatch("p", "job"),
    Handoff("p", "other"),
    ToolResult("nobody asked"),
    TurnEnd(""),
    FAILED,
]


def shown(*events: Event) -> list[tuple[object, ...]]:
    script = Script()
    script.say(*events)
    return script.shown


def name(event: Event) -> str:
    return type(event).__name__


# A segment opens.


@pytest.mark.parametrize("event", OPENERS, ids=name)
def test_a_segment_opens_at_the_first_fragment_whole_text_or_call(event: Event) -> None:
    assert shown(event)[0] == WORKING_1


@pytest.mark.parametrize("event", SILENT, ids=name)
def test_nothing_else_opens_a_segment(event: Event) -> None:
    assert shown(event) == []


@pytest.mark.parametrize("second", OPENERS, ids=name)
@pytest.mark.parametrize("first", OPENERS, ids=name)
def test_an_open_segment_is_not_opened_again(first: Event, second: Event) -> None:
    assert [line for line in shown(first, second) if line[0] == "working"] == [WORKING_1]


@pytest.mark.parametrize("event", OPENERS, ids=name)
def test_a_tool_result_closes_so_the_next_event_opens(event: Event) -> None:
    assert shown(CALL, RESULT, event)[:3] == [WORKING_1, ("artifact", "c1"), WORKING_2]


def test_working_is_written_before_the_fragment_that_opened_the_segment() -> None:
    assert shown(TextDelta("a")) == [WORKING_1, ("text", "a", False)]


def test_opening_reads_the_turn_counter_and_never_advances_it() -> None:
    script = Script()

    script.say(TextDelta("a"), ThinkingDelta("b"), Thinking("c"))

    assert script.run.turns == 0


def test_a_fragment_and_the_text_that_replaces_it_are_one_turn() -> None:
    script = Script()

    script.say(TextDelta("a"), Text("a"), CALL, RESULT, TextDelta("b"))

    assert script.run.turns == 1
    assert [line for line in script.shown if line[0] == "working"] == [WORKING_1, WORKING_2]


def test_working_names_the_open_turn_when_one_is_open() -> None:
    """Two parallel calls of turn 1: its segment closed, then it speaks on under another answer."""
    script = Script()

    script.say(Text("a", "m1"), CALL, RESULT, Text("b", "m1"))

    assert [line for line in script.shown if line[0] == "working"] == [WORKING_1, WORKING_1]


def test_a_thinking_only_segment_closed_by_a_tool_result_leaves_the_counter() -> None:
    script = Script()
    script.say(CALL, ToolCall("c2", "list"), RESULT)

    script.say(Thinking("so"), ToolResult("c2"), Text("b"))

    assert script.run.turns == 2
    assert [line for line in script.shown if line[0] == "working"] == [
        WORKING_1,
        WORKING_2,
        WORKING_2,
    ]


def test_a_segment_that_opens_has_forgotten_what_the_last_one_streamed() -> None:
    """Streamed text: the fallback is sent again. Streamed thinking: a whole one is sent again."""
    frames = shown(
        ThinkingDelta("t"), TextDelta("a"), CALL, RESULT, Thinking("u"), TurnEnd("the answer")
    )

    assert frames[-3:] == [WORKING_2, ("thinking", "u"), ("text", "the answer", True)]


# Text replaces, it never appends.


def test_a_delta_is_sent_as_it_came() -> None:
    assert shown(TextDelta("a"), TextDelta("b"))[1:] == [("text", "a", False), ("text", "b", False)]


def test_an_empty_delta_counts_as_a_delta() -> None:
    assert shown(TextDelta(""), TurnEnd("x")) == [WORKING_1, ("text", "", False), REMOVAL]


def test_a_whole_text_pays_the_removal_and_its_words_are_in_no_frame() -> None:
    assert shown(TextDelta("a"), Text("a whole")) == [WORKING_1, ("text", "a", False), REMOVAL]


def test_the_words_of_a_whole_text_are_a_fact() -> None:
    script = Script()

    script.say(Text("words"))

    assert script.shown == [WORKING_1]
    assert [fact.event for fact in script.facts if isinstance(fact, Said)] == [Text("words")]


@pytest.mark.parametrize(
    "payer", [Text("a"), RESULT, TurnEnd("r"), FAILED], ids=["text", "tool-result", "end", "failed"]
)
def test_the_removal_is_paid_by_whichever_comes_first(payer: Event) -> None:
    frames = shown(CALL, TextDelta("a"), payer)

    assert frames[1:3] == [("text", "a", False), REMOVAL]
    assert frames.count(REMOVAL) == 1


@pytest.mark.parametrize(
    "other",
    [ThinkingDelta("t"), Thinking("t"), ToolCall("c2", "x"), *SILENT[:-2]],
    ids=name,
)
def test_nothing_else_pays_the_removal(other: Event) -> None:
    assert REMOVAL not in shown(TextDelta("a"), other)


def test_the_removal_is_paid_once() -> None:
    frames = shown(CALL, TextDelta("a"), Text("a"), Text("a"), RESULT, TurnEnd("r"))

    assert frames.count(REMOVAL) == 1


def test_the_removal_is_owed_again_by_the_next_delta() -> None:
    frames = shown(TextDelta("a"), Text("a"), TextDelta("b"), Text("b"))

    assert frames[1:] == [("text", "a", False), REMOVAL, ("text", "b", False), REMOVAL]


def test_a_whole_text_that_was_not_streamed_sends_no_text_frame() -> None:
    assert shown(Text("a")) == [WORKING_1]


def test_without_a_terminal_event_the_removal_stands_directly_before_the_final_status() -> None:
    script = Script()
    script.say(TextDelta("a"))

    script.end(GONE)

    assert script.shown[-2:] == [REMOVAL, ("failed", "it said nothing", None)]
    assert script.frames[-1].prev == script.frames[-2].seq


def test_a_run_that_fails_outside_any_event_pays_the_removal_before_the_final_status() -> None:
    script = Script()
    script.say(TextDelta("a"))

    script.fail(Reason.LOST, "gone")

    assert script.shown[-2:] == [REMOVAL, ("failed", "gone", None)]
    assert script.entries[-2:] == script.frames[-2:]


def test_a_removal_that_a_dead_attempt_owed_is_paid_before_the_next_one_opens_a_segment() -> None:
    script = Script(Progress(removal_owed=True))

    script.say(TextDelta("a"))

    assert script.shown == [REMOVAL, WORKING_1, ("text", "a", False)]


# Thinking.


def test_thinking_frames_are_never_final() -> None:
    script = Script()

    script.say(ThinkingDelta("a"), CALL, RESULT, Thinking("b"), TurnEnd("r"))
    script.end()

    thoughts = [frame for frame in script.frames if isinstance(frame, ThinkingFrame)]
    assert [(frame.text, frame.final) for frame in thoughts] == [("a", False), ("b", False)]


def test_a_whole_thinking_after_a_streamed_one_is_a_repeat_and_not_sent() -> None:
    assert shown(ThinkingDelta("a"), Thinking("a")) == [WORKING_1, ("thinking", "a")]


def test_an_empty_thinking_delta_counts_as_streamed() -> None:
    assert shown(ThinkingDelta(""), Thinking("a")) == [WORKING_1, ("thinking", "")]


def test_two_whole_thinkings_that_were_not_streamed_are_two_frames() -> None:
    assert shown(Thinking("a"), Thinking("b"))[1:] == [("thinking", "a"), ("thinking", "b")]


def test_streamed_text_does_not_make_a_whole_thinking_a_repeat() -> None:
    assert shown(TextDelta("a"), Thinking("b"))[2:] == [("thinking", "b")]


def test_streamed_thinking_does_not_stand_for_the_answer() -> None:
    assert shown(ThinkingDelta("a"), TurnEnd("the answer"))[-1] == ("text", "the answer", True)


def test_thinking_owes_no_removal() -> None:
    assert REMOVAL not in shown(ThinkingDelta("a"), Thinking("a"), CALL, RESULT)


# Tool results.


def test_a_tool_result_pays_then_closes_then_sends_its_artifact() -> None:
    frames = shown(CALL, TextDelta("a"), RESULT, TextDelta("b"))

    assert frames[2:] == [REMOVAL, ("artifact", "c1"), WORKING_2, ("text", "b", False)]


def test_a_tool_call_alone_sends_nothing_but_working() -> None:
    assert shown(CALL) == [WORKING_1]


def test_the_second_result_of_two_parallel_calls_is_an_artifact_only() -> None:
    frames = shown(CALL, ToolCall("c2", "read"), TextDelta("a"), RESULT, ToolResult("c2"))

    assert frames[2:] == [REMOVAL, ("artifact", "c1"), ("artifact", "c2")]


@pytest.mark.parametrize(
    "before", [[], [CALL, RESULT], [TextDelta("a")]], ids=["ever", "twice", "streaming"]
)
def test_a_result_without_its_call_is_a_note_and_no_frame(before: list[Event]) -> None:
    script = Script()
    script.say(*before)
    frames, notes = len(script.frames), script.facts

    script.say(ToolResult("c1" if RESULT in before else "c9", content="x"))

    assert len(script.frames) == frames
    (noted,) = script.facts[len(notes) :]
    assert isinstance(noted, Noted)
    assert "a result without its call" in noted.text


def test_a_result_without_its_call_closes_nothing() -> None:
    frames = shown(TextDelta("a"), ToolResult("c9"), TextDelta("b"), TurnEnd("r"))

    assert frames == [WORKING_1, ("text", "a", False), ("text", "b", False), REMOVAL]


# The end of the turn.


def test_turn_end_pays_the_removal_and_sends_no_fallback_after_streamed_text() -> None:
    assert shown(TextDelta("a"), TurnEnd("a")) == [WORKING_1, ("text", "a", False), REMOVAL]


def test_the_same_words_are_not_sent_twice() -> None:
    frames = shown(TextDelta("a"), TextDelta("b"), Text("ab"), TurnEnd("ab"))

    assert "".join(str(line[1]) for line in frames if line[0] == "text") == "ab"


def test_turn_end_with_no_segment_is_one_final_text_and_no_working() -> None:
    assert shown(TurnEnd("the answer")) == [("text", "the answer", True)]


def test_turn_end_with_an_unstreamed_segment_sends_the_whole_result() -> None:
    assert shown(Text("a"), TurnEnd("a")) == [WORKING_1, ("text", "a", True)]


def test_an_empty_result_sends_no_text_frame() -> None:
    assert shown(Text("a"), TurnEnd("")) == [WORKING_1]


def test_the_flags_outlive_the_segment() -> None:
    """Streamed, tool-result, turn-end: the last segment is closed and still asked."""
    frames = shown(CALL, TextDelta("a"), RESULT, TurnEnd("a"))

    assert frames[-1] == ("artifact", "c1")


def test_only_the_last_segment_is_asked() -> None:
    frames = shown(TextDelta("a"), CALL, RESULT, ToolCall("c2", "x"), TurnEnd("the answer"))

    assert frames[-1] == ("text", "the answer", True)


def test_a_fragment_ended_by_a_whole_text_still_counts_as_streamed() -> None:
    assert shown(TextDelta("a"), Text("a"), TurnEnd("a"))[-1] == REMOVAL


def test_a_failed_turn_pays_the_removal_and_sends_no_text() -> None:
    assert shown(Text("a"), TextDelta("b"), FAILED)[-2:] == [("text", "b", False), REMOVAL]


def test_the_result_is_written_before_the_frames_of_its_end() -> None:
    script = Script()

    actions = script.say(TextDelta("a"), TurnEnd("the answer"))

    written = actions.index(WriteResult("the answer"))
    removal = next(i for i, a in enumerate(actions) if "text=''" in repr(a))
    assert written < removal


# After a stop was asked.


@pytest.mark.parametrize("reason", [Reason.INTERRUPTED, Reason.WALL, Reason.OUTPUT, Reason.KILLED])
def test_after_a_stop_everything_flows_but_the_fallback(reason: Reason) -> None:
    script = Script()
    script.say(CALL)
    script.stop(reason, "stop")

    script.say(
        TextDelta("a"),
        ThinkingDelta("b"),
        RESULT,
        Thinking("c"),
        TextDelta("d"),
        Text("d"),
        TurnEnd("r"),
    )

    assert script.shown[1:] == [
        ("text", "a", False),
        ("thinking", "b"),
        REMOVAL,
        ("artifact", "c1"),
        WORKING_2,
        ("thinking", "c"),
        ("text", "d", False),
        REMOVAL,
    ]


@pytest.mark.parametrize("reason", [Reason.INTERRUPTED, Reason.WALL, Reason.OUTPUT, Reason.KILLED])
def test_after_a_stop_the_fallback_is_not_sent(reason: Reason) -> None:
    script = Script()
    script.stop(reason, "stop")

    script.say(TurnEnd("the answer"))

    assert script.shown == []


def test_the_result_of_a_stopped_run_is_written_all_the_same() -> None:
    script = Script()
    script.stop(Reason.INTERRUPTED)

    script.say(TurnEnd("its own last words"))

    assert WriteResult("its own last words") in script.asked


@pytest.mark.parametrize("terminal", [TurnEnd("r"), FAILED], ids=name)
@pytest.mark.parametrize("late", [*OPENERS, *SILENT], ids=name)
def test_events_after_the_terminal_one_are_noted_and_no_frame(terminal: Event, late: Event) -> None:
    script = Script()
    script.say(terminal)
    frames, facts = script.frames, script.facts

    script.say(late)

    assert script.frames == frames
    (noted,) = script.facts[len(facts) :]
    assert isinstance(noted, Noted)
    assert noted.text.startswith("after the terminal event: {")


def test_events_after_the_terminal_one_in_the_same_breath_are_noted_too() -> None:
    script = Script()

    script.say(TurnEnd("r"), TextDelta("late"))

    assert script.shown == [("text", "r", True)]
    assert isinstance(script.facts[-1], Noted)


def test_a_late_result_does_not_replace_the_first() -> None:
    script = Script()
    script.say(TurnEnd("first"), TurnEnd("second"))

    script.end()

    assert script.shown[-1] == ("completed", "session ended", "first")
    assert [action for action in script.asked if isinstance(action, WriteResult)] == [
        WriteResult("first")
    ]


def test_text_frames_say_whether_they_are_final() -> None:
    script = Script()

    script.say(TextDelta("a"), TurnEnd("a"))

    frames = [frame for frame in script.frames if isinstance(frame, TextFrame)]
    assert [frame.final for frame in frames] == [False, True]
