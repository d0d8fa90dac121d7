"""The states of a run: every legal move, and that no other is possible."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from capsule_runtime import (
    Reason,
    TextDelta,
    TurnEnd,
)
from capsule_runtime.core.states import TRANSITIONS, Cause, IllegalMove, State
from support.script import Script

LEGAL: dict[State, dict[Cause, State]] = {
    State.STARTING: {
        Cause.LAUNCHED: State.RUNNING,
        Cause.STOP_ASKED: State.STOPPING,
        Cause.EXITED: State.ENDED,
    },
    State.RUNNING: {
        Cause.SPOKE: State.RUNNING,
        Cause.TERMINAL: State.STOPPING,
        Cause.STOP_ASKED: State.STOPPING,
        Cause.EXITED: State.ENDED,
    },
    State.STOPPING: {
        Cause.LAUNCHED: State.STOPPING,
        Cause.SPOKE: State.STOPPING,
        Cause.TERMINAL: State.STOPPING,
        Cause.STOP_ASKED: State.STOPPING,
        Cause.EXITED: State.ENDED,
    },
    State.ENDED: {Cause.STOP_ASKED: State.ENDED},
}


def _starting() -> Script:
    return Script(launched=False)


def _stopping() -> Script:
    script = Script()
    script.stop(Reason.INTERRUPTED)
    return script


def _ended() -> Script:
    script = Script()
    script.say(TurnEnd("r"))
    script.end()
    return script


IN_STATE: dict[State, Callable[[], Script]] = {
    State.STARTING: _starting,
    State.RUNNING: Script,
    State.STOPPING: _stopping,
    State.ENDED: _ended,
}
BRING: dict[Cause, Callable[[Script], object]] = {
    Cause.LAUNCHED: Script.launched,
    Cause.SPOKE: lambda script: script.say(TextDelta("a")),
    Cause.TERMINAL: lambda script: script.say(TurnEnd("r")),
    Cause.STOP_ASKED: lambda script: script.stop(Reason.WALL),
    Cause.EXITED: Script.end,
}
ALL_MOVES = [(state, cause) for state in State for cause in Cause]
_ids = [f"{cause.name}-while-{state.name}" for state, cause in ALL_MOVES]


def test_every_state_has_a_row() -> None:
    assert set(TRANSITIONS) == set(State)


def test_the_table_is_this_one() -> None:
    assert TRANSITIONS == LEGAL


@pytest.mark.parametrize(("state", "cause"), ALL_MOVES, ids=_ids)
def test_a_cause_moves_the_run_as_the_table_says_or_is_illegal(state: State, cause: Cause) -> None:
    script = IN_STATE[state]()
    assert script.run.state is state

    if (target := LEGAL[state].get(cause)) is None:
        with pytest.raises(IllegalMove, match=f"while {state.name}"):
            BRING[cause](script)
    else:
        BRING[cause](script)
        assert script.run.state is target


@pytest.mark.parametrize(("state", "cause"), ALL_MOVES, ids=_ids)
def test_an_illegal_move_writes_nothing(state: State, cause: Cause) -> None:
    if cause in LEGAL[state]:
        return
    script = IN_STATE[state]()
    position = script.run.position

    with pytest.raises(IllegalMove):
        BRING[cause](script)

    assert script.run.position == position
    assert script.run.state is state


def test_a_run_that_fails_to_start_ends_from_every_state_but_the_end() -> None:
    for state in (State.STARTING, State.RUNNING, State.STOPPING):
        script = IN_STATE[state]()
        script.fail(Reason.HOST_FAILED, "no processes left")
        assert script.run.state is State.ENDED


def test_a_run_ends_once() -> None:
    script = _ended()

    with pytest.raises(IllegalMove):
        script.end()
    with pytest.raises(IllegalMove):
        script.fail(Reason.LOST)


def test_whoever_asks_too_late_changes_nothing() -> None:
    script = _ended()

    assert script.stop(Reason.KILLED) == []
    assert script.grace_over() == []
    assert script.run.reason is Reason.COMPLETED


def test_nothing_is_heard_of_a_run_that_ended() -> None:
    """A frame behind the final status would be a second ending for whoever follows."""
    script = _starting()
    script.fail(Reason.LAUNCH_FAILED, "not found")

    with pytest.raises(IllegalMove):
        script.say(TextDelta("late"))
