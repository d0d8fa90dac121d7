"""How model answers are counted."""

from __future__ import annotations

import pytest

from capsule_runtime import (
    Event,
    TextDelta,
    Thinking,
    ThinkingDelta,
    ToolCall,
    ToolResult,
    TurnEnd,
)
from capsule_runtime.core.actions import Progress
from capsule_runtime.core.turns import Turns
from capsule_runtime.events import Text
from support.script import Script

CALL = ToolCall("c1", "x")
RESULT = ToolResult("c1")


@pytest.mark.parametrize(
    ("events", "turns"),
    [
        ([], 0),
        ([TextDelta("a"), ThinkingDelta("b"), Thinking("c")], 0),
        ([Text("a")], 1),
        ([CALL], 1),
        ([Text("a"), Text("b"), CALL], 1),
        ([CALL, RESULT, Text("a")], 2),
        ([CALL, ToolCall("c2", "x"), RESULT, ToolResult("c2"), Text("a")], 2),
        ([Text("a", "m1"), Text("b", "m1"), CALL], 1),
        ([Text("a", "m1"), Text("b", "m2")], 2),
        ([Thinking("a", "m1"), Text("b", "m1")], 1),
        ([Thinking("a", "m1"), Thinking("b", "m2")], 2),
        ([ToolCall("c1", "x", answer="m1"), RESULT, Text("b", "m1")], 1),
        ([ToolCall("c1", "x", answer="m1"), RESULT, Text("b", "m2")], 2),
        ([ToolCall("c1", "x", answer="m1"), RESULT, Text("b")], 2),
        ([ToolCall("c1", "x"), Text("b", "m1")], 2),
        ([Text("a"), ToolResult("without its call"), Text("b")], 1),
        ([TurnEnd("a")], 0),
    ],
    ids=[
        "nothing",
        "fragments and thinking count nothing",
        "a whole text",
        "a tool call",
        "texts and calls up to the result are one",
        "the next one after a result",
        "parallel calls are one",
        "one answer id is one",
        "the answer id changes",
        "thinking with an id opens the turn of its text",
        "thinking with another id",
        "more of the same answer after a result",
        "another answer after a result",
        "no answer id after a result",
        "an answer id after none",
        "a result without its call ends no turn",
        "the end counts nothing",
    ],
)
def test_turns_are_model_answers(events: list[Event], turns: int) -> None:
    script = Script()

    script.say(*events)

    assert script.run.turns == turns


def test_the_counter_goes_on_over_attempts() -> None:
    script = Script(Progress(turns=4, tool_calls=7))

    script.say(TextDelta("a"), CALL)

    assert script.shown[0] == ("working", "inference turn 5")
    assert (script.run.turns, script.run.tool_calls) == (5, 8)


def test_an_open_turn_does_not_outlive_its_attempt() -> None:
    """Whether the dead attempt's turn was open is not handed on: the next answer is a new turn."""
    script = Script(Progress(turns=1))

    script.say(Text("a"))

    assert script.run.turns == 2


def test_current_is_the_open_turn_or_else_the_next() -> None:
    turns = Turns()

    assert turns.current == 1
    turns.saw_whole(None)
    assert turns.current == 1
    turns.close()
    assert turns.current == 2


def test_more_of_an_answer_after_its_result_reopens_its_turn() -> None:
    turns = Turns()
    turns.saw_whole("m1")
    turns.close()

    turns.saw_answer("m1")

    assert (turns.current, turns.counted) == (1, 1)


def test_every_tool_call_is_counted() -> None:
    script = Script()

    script.say(CALL, ToolCall("c2", "x"), RESULT, CALL)

    assert script.run.tool_calls == 3
