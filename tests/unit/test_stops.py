"""The stop ladder: who is asked what, in which order, and what is recorded of it."""

from __future__ import annotations

import pytest

from capsule_runtime import (
    Event,
    FailureKind,
    Permission,
    Reason,
    Text,
    ToolCall,
    ToolResult,
    TurnEnd,
    TurnFailed,
)
from capsule_runtime.core.actions import (
    Bury,
    Interrupt,
    WindDown,
    WriteResult,
)
from capsule_runtime.core.facts import (
    Ended,
    Exited,
    KillStarted,
    Launched,
    Noted,
    Said,
    SpendClosed,
    StopAsked,
    TreeEmpty,
)
from capsule_runtime.core.journal import Append
from capsule_runtime.core.states import WITHOUT_GRACE
from support.script import Script

CALL = ToolCall("c1", "list", {"path": "."})
RESULT = ToolResult("c1", content="two files")
FAILED = TurnFailed(FailureKind.QUOTA, "no money")


def test_a_stop_is_recorded_before_the_harness_is_asked() -> None:
    script = Script()

    record, act = script.stop(Reason.WALL, "too long")

    assert isinstance(record, Append)
    (fact,) = record.entries
    assert isinstance(fact, StopAsked)
    assert (fact.reason, fact.message) == (Reason.WALL, "too long")
    assert act == Interrupt()


@pytest.mark.parametrize("reason", sorted(WITHOUT_GRACE))
def test_some_reasons_have_nothing_to_wait_for(reason: Reason) -> None:
    script = Script()

    record, act = script.stop(reason)

    assert isinstance(record, Append)
    assert [type(fact) for fact in record.entries] == [StopAsked, KillStarted]
    assert act == Bury()


@pytest.mark.parametrize("reason", sorted(set(Reason) - WITHOUT_GRACE))
def test_all_others_ask_first(reason: Reason) -> None:
    script = Script()

    script.stop(reason)

    assert script.asked == [Interrupt()]


def test_a_harness_that_is_still_there_after_its_grace_is_buried() -> None:
    script = Script()
    script.stop(Reason.WALL)

    record, act = script.grace_over()

    assert isinstance(record, Append)
    assert [type(fact) for fact in record.entries] == [KillStarted]
    assert act == Bury()


def test_the_tree_is_killed_once() -> None:
    script = Script()
    script.stop(Reason.KILLED)

    script.grace_over()
    script.stop(Reason.KILLED)

    assert script.asked == [Bury()]


def test_a_kill_skips_the_grace_of_a_limit() -> None:
    script = Script()
    script.stop(Reason.WALL)

    script.stop(Reason.KILLED)

    assert script.asked == [Interrupt(), Bury()]


@pytest.mark.parametrize("first", [Reason.WALL, Reason.KILLED])
def test_a_kill_after_the_kill_is_not_recorded_again(first: Reason) -> None:
    script = Script()
    script.stop(first)
    script.grace_over()

    assert script.stop(Reason.KILLED) == []


@pytest.mark.parametrize("second", [Reason.WALL, Reason.IDLE, Reason.INTERRUPTED])
def test_a_second_reason_to_stop_changes_nothing(second: Reason) -> None:
    script = Script()
    script.stop(Reason.INTERRUPTED)

    assert script.stop(second) == []


def test_a_second_ctrl_c_skips_to_the_kill() -> None:
    script = Script()
    script.stop(Reason.INTERRUPTED)

    script.stop(Reason.KILLED)

    assert script.asked == [Interrupt(), Bury()]


def test_a_harness_that_ended_its_turn_is_let_go_with_its_grace() -> None:
    script = Script()

    script.say(TurnEnd("r"))
    script.grace_over()

    assert script.asked == [WriteResult("r"), WindDown(), Bury()]
    assert script.run.reason is Reason.COMPLETED


@pytest.mark.parametrize("reason", [Reason.INTERRUPTED, Reason.TERMINATED, Reason.HANG_UP])
def test_whoever_will_not_wait_for_the_goodbye_kills(reason: Reason) -> None:
    script = Script()
    script.say(TurnEnd("r"))

    script.stop(reason)
    script.end()

    assert script.asked == [WriteResult("r"), WindDown(), Bury()]
    assert script.shown[-1] == ("completed", "session ended", "r")


def test_a_limit_does_not_cut_the_goodbye_short() -> None:
    script = Script()
    script.say(TurnEnd("r"))

    assert script.stop(Reason.WALL) == []


def test_an_interrupted_harness_that_ends_its_turn_is_let_go() -> None:
    script = Script()
    script.stop(Reason.INTERRUPTED)

    script.say(TurnEnd("r"))

    assert script.asked == [Interrupt(), WriteResult("r"), WindDown()]


def test_a_harness_that_closed_its_output_and_stays_is_buried() -> None:
    script = Script()

    script.grace_over()

    assert script.run.reason is None
    assert [type(fact) for fact in script.facts] == [Launched, Noted, KillStarted]
    assert script.asked == [Bury()]


def test_the_driver_says_what_the_end_of_a_harness_that_closed_its_output_means() -> None:
    script = Script()
    script.grace_over()

    script.end(TurnEnd("it was in a file"))

    assert script.run.reason is Reason.COMPLETED
    assert script.shown[-1] == ("completed", "session ended", "it was in a file")


def test_a_stop_is_the_reason_even_while_a_silent_harness_is_killed() -> None:
    script = Script()
    script.grace_over()

    script.stop(Reason.INTERRUPTED)
    script.end(TurnFailed(FailureKind.HARNESS_ERROR, "killed"))

    assert script.run.reason is Reason.INTERRUPTED


def test_a_grace_that_passes_before_the_launch_kills_nothing() -> None:
    assert Script(launched=False).grace_over() == []


def test_a_stop_before_the_launch_is_kept() -> None:
    script = Script(launched=False)
    script.stop(Reason.INTERRUPTED)

    script.launched()
    script.end()

    assert script.shown == [("canceled", "task canceled", None)]


def test_the_facts_of_a_stop_are_recorded_apart() -> None:
    script = Script()
    script.stop(Reason.INTERRUPTED, "by hand")
    script.say(TurnEnd("r"))
    script.end(killed=2)

    assert [type(fact) for fact in script.facts] == [
        Launched,
        StopAsked,
        Said,
        Exited,
        TreeEmpty,
        SpendClosed,
        Ended,
    ]


@pytest.mark.parametrize("words", [TurnEnd("r"), FAILED, Permission("p", "x")])
def test_nothing_is_asked_of_a_harness_that_is_gone(words: Event) -> None:
    """The driver's last words come after the exit: there is no stdin to close or to answer on."""
    script = Script()

    script.end(words)

    assert [a for a in script.asked if not isinstance(a, WriteResult)] == []


def test_last_words_after_a_terminal_event_are_not_heard() -> None:
    script = Script()
    script.say(TurnEnd("r"))
    said = len(script.facts)

    script.end(FAILED)

    assert [type(fact) for fact in script.facts[said:]] == [
        Exited,
        TreeEmpty,
        SpendClosed,
        Ended,
    ]


def test_last_words_may_be_an_answer() -> None:
    script = Script()

    script.end(Text("a"), TurnEnd("the answer"))

    assert script.shown == [
        ("working", "inference turn 1"),
        ("text", "the answer", True),
        ("completed", "session ended", "the answer"),
    ]


def test_a_run_may_end_before_its_launch_was_noticed() -> None:
    script = Script(launched=False)

    script.end(FAILED)

    assert script.run.reason is Reason.QUOTA


def test_a_kill_before_the_launch_kills_no_harness() -> None:
    script = Script(launched=False)

    script.stop(Reason.KILLED)
    script.fail(Reason.INTERRUPTED)

    assert script.shown[-1] == ("canceled", "task canceled", None)
    assert script.run.reason is Reason.KILLED
