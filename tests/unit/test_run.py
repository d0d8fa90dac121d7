"""How a run ends: one final status on every path, and the first reason on record."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from capsule_runtime import (
    Activity,
    Exit,
    FailureKind,
    Outcome,
    Reason,
    StatusFrame,
    Text,
    TextDelta,
    ToolCall,
    ToolResult,
    TurnEnd,
    TurnFailed,
)
from capsule_runtime.core.actions import (
    Bury,
    Interrupt,
    Progress,
)
from capsule_runtime.core.facts import (
    Ended,
    StopAsked,
)
from capsule_runtime.core.journal import Append
from capsule_runtime.core.outcome import OUTCOME_OF
from capsule_runtime.core.states import IllegalMove
from support.script import CONTEXT, GONE, RUN, Script

CALL = ToolCall("c1", "list", {"path": "."})
RESULT = ToolResult("c1", content="two files")
FAILED = TurnFailed(FailureKind.QUOTA, "no money")

# The one final status.


def _finals(script: Script) -> list[StatusFrame]:
    return [f for f in script.frames if isinstance(f, StatusFrame) and f.final]


ENDINGS: dict[str, Callable[[Script], object]] = {
    "completed": lambda s: (s.say(TurnEnd("r")), s.end()),
    "failed": lambda s: (s.say(FAILED), s.end()),
    "exit without a word": Script.end,
    "exit, and the driver names no terminal event": lambda s: s.end(Activity("?")),
    "died by a signal": lambda s: s.end(exit=Exit(None, 11)),
    "the driver's last words are an answer": lambda s: s.end(TurnEnd("r")),
    "interrupted": lambda s: (s.stop(Reason.INTERRUPTED), s.end()),
    "interrupted and it answered": lambda s: (
        s.stop(Reason.INTERRUPTED),
        s.say(TurnEnd("r")),
        s.end(),
    ),
    "killed": lambda s: (s.stop(Reason.KILLED), s.end()),
    "interrupted, then had to be killed": lambda s: (
        s.stop(Reason.INTERRUPTED),
        s.grace_over(),
        s.end(),
    ),
    "wall": lambda s: (s.stop(Reason.WALL, "too long"), s.end()),
    "idle": lambda s: (s.stop(Reason.IDLE, "too quiet"), s.end()),
    "output": lambda s: (s.stop(Reason.OUTPUT, "too much"), s.end()),
    "closed its output and stayed": lambda s: (s.grace_over(), s.end()),
    "lost": lambda s: s.fail(Reason.LOST, "gone"),
    "host failed": lambda s: s.fail(Reason.HOST_FAILED, "gone"),
}


@pytest.mark.parametrize("how", ENDINGS)
def test_every_ending_writes_one_final_status_and_it_is_the_last_entry(how: str) -> None:
    script = Script()
    script.say(TextDelta("a"))

    ENDINGS[how](script)

    (final,) = _finals(script)
    assert script.entries[-1] is final


@pytest.mark.parametrize("how", ENDINGS)
def test_the_end_is_a_fact_before_the_final_status(how: str) -> None:
    script = Script()

    ENDINGS[how](script)

    (ended,) = [fact for fact in script.facts if isinstance(fact, Ended)]
    assert ended.seq < script.frames[-1].seq
    assert ended.outcome is OUTCOME_OF[ended.reason]
    assert (ended.reason, ended.message) == (script.run.reason, script.run.message)


@pytest.mark.parametrize("how", ENDINGS)
def test_the_end_and_the_final_status_are_one_commit(how: str) -> None:
    """Nothing stands between them that the host would have to perform first."""
    script = Script()

    ENDINGS[how](script)

    last_ask = max((script.actions.index(asked) for asked in script.asked), default=-1)
    behind = [a for a in script.actions[last_ask + 1 :] if isinstance(a, Append)]
    assert any(isinstance(entry, Ended) for append in behind for entry in append.entries)


@pytest.mark.parametrize("how", ENDINGS)
def test_only_a_completed_run_has_a_response(how: str) -> None:
    script = Script()

    ENDINGS[how](script)

    (final,) = _finals(script)
    assert (final.response is not None) == (script.run.outcome is Outcome.COMPLETED)


def test_the_response_of_a_completed_run_is_there_even_when_it_is_empty() -> None:
    script = Script()
    script.say(TurnEnd(""))

    script.end()

    assert script.shown[-1] == ("completed", "session ended", "")


def test_the_response_is_the_result_as_the_harness_reported_it() -> None:
    script = Script()
    script.say(TextDelta("a"), Text("b"), TurnEnd("  c\n"))

    script.end()

    assert script.shown[-1] == ("completed", "session ended", "  c\n")


def test_status_frames_carry_run_and_context() -> None:
    script = Script()
    script.say(TextDelta("a"), TurnEnd("r"))

    script.end()

    for frame in script.frames:
        assert frame.run == RUN
        if isinstance(frame, StatusFrame):
            assert frame.context == CONTEXT


def test_an_interrupted_run_is_canceled_whatever_the_harness_says_next() -> None:
    for words in (TurnEnd("r"), FAILED, GONE):
        script = Script()
        script.stop(Reason.INTERRUPTED)
        script.say(words)
        script.end()
        assert script.shown[-1] == ("canceled", "task canceled", None)


def test_a_harness_that_had_to_be_killed_is_the_one_thing_canceled_says_beyond() -> None:
    script = Script()
    script.stop(Reason.INTERRUPTED)
    script.grace_over()

    script.end()

    assert script.shown[-1] == (
        "canceled",
        "task canceled; the harness was killed and its session may not resume cleanly",
        None,
    )


def test_a_driver_that_names_no_terminal_event_failed() -> None:
    script = Script()

    script.end(Activity("?"))

    assert script.run.reason is Reason.DRIVER_FAILED


# The first reason on record.

REASONS: dict[str, Callable[[Script], object]] = {
    "turn-end": lambda s: s.say(TurnEnd("r")),
    "turn-failed": lambda s: s.say(FAILED),
    "interrupt": lambda s: s.stop(Reason.INTERRUPTED, "by hand"),
    "limit": lambda s: s.stop(Reason.WALL, "too long"),
    "exit": Script.end,
}
GIVES = {
    "turn-end": Reason.COMPLETED,
    "turn-failed": Reason.QUOTA,
    "interrupt": Reason.INTERRUPTED,
    "limit": Reason.WALL,
    "exit": Reason.INDETERMINATE,
}
ORDERS = sorted(
    {order[: order.index("exit") + 1] for order in itertools.permutations(REASONS)},
)


@pytest.mark.parametrize("order", ORDERS, ids=" ".join)
def test_the_first_reason_on_record_wins(order: tuple[str, ...]) -> None:
    script = Script()
    script.say(TextDelta("a"))

    for cause in order:
        REASONS[cause](script)

    assert script.run.reason is GIVES[order[0]]
    assert script.run.outcome is OUTCOME_OF[GIVES[order[0]]]
    assert len(_finals(script)) == 1


@pytest.mark.parametrize("order", list(itertools.permutations(REASONS)), ids=" ".join)
def test_after_the_exit_nothing_changes_the_ending(order: tuple[str, ...]) -> None:
    script = Script()
    exit = order.index("exit")
    for cause in order[: exit + 1]:
        REASONS[cause](script)
    frames, reason = script.frames, script.run.reason

    for cause in order[exit + 1 :]:
        if cause in ("interrupt", "limit"):
            assert REASONS[cause](script) == []
        else:
            with pytest.raises(IllegalMove):
                REASONS[cause](script)

    assert script.frames == frames
    assert script.run.reason is reason


def test_the_first_reason_of_one_breath_wins() -> None:
    script = Script()

    script.say(FAILED, TurnEnd("r"))

    assert script.run.reason is Reason.QUOTA


@pytest.mark.parametrize("kind", FailureKind)
def test_a_failed_turn_names_its_reason(kind: FailureKind) -> None:
    script = Script()

    script.say(TurnFailed(kind, "why"))

    assert (script.run.reason, script.run.message) == (Reason(kind.value), "why")


def test_a_persons_kill_refines_a_persons_interrupt() -> None:
    script = Script()
    script.stop(Reason.INTERRUPTED)

    script.stop(Reason.KILLED)

    assert script.run.reason is Reason.KILLED


@pytest.mark.parametrize("first", ["turn-end", "turn-failed", "limit"])
def test_a_kill_refines_nothing_else(first: str) -> None:
    script = Script()
    REASONS[first](script)

    script.stop(Reason.KILLED)

    assert script.run.reason is GIVES[first]


def test_a_kill_after_the_ladder_reached_the_kill_is_on_record_and_kills_once() -> None:
    """What changes the reason must be in the log, or a recovery would tell another story."""
    script = Script()
    script.stop(Reason.INTERRUPTED)
    script.grace_over()

    script.stop(Reason.KILLED)

    stops = [fact.reason for fact in script.facts if isinstance(fact, StopAsked)]
    assert stops == [Reason.INTERRUPTED, Reason.KILLED]
    assert script.asked == [Interrupt(), Bury()]


def test_a_reason_from_before_the_crash_stays_the_reason() -> None:
    script = Script(Progress(reason=Reason.INTERRUPTED, message="by hand"), launched=False)

    script.fail(Reason.LOST, "the owner died")

    assert script.shown == [("canceled", "task canceled", None)]


def test_a_completed_run_whose_owner_died_is_completed_with_its_result() -> None:
    script = Script(Progress(reason=Reason.COMPLETED, result="the answer"), launched=False)

    script.fail(Reason.LOST, "the owner died")

    assert script.shown == [("completed", "session ended", "the answer")]
