"""Which limit is due, and when."""

from __future__ import annotations

import pytest

from capsule_runtime import Reason
from capsule_runtime.core.conversation import Phase
from capsule_runtime.core.limits import Deadlines, GraceOver, LimitPassed, Limits
from capsule_runtime.manifest import Limits as ManifestLimits

IDLE = {
    Phase.FIRST_TOKEN: 50.0,
    Phase.STREAMING: 30.0,
    Phase.TOOL: 300.0,
    Phase.RATE_LIMITED: 100.0,
}
LIMITS = Limits(wall=1000, grace=5, output=10, line=10, idle=IDLE)


def begun(now: float = 0.0) -> Deadlines:
    deadlines = Deadlines(LIMITS)
    deadlines.started(now)
    return deadlines


def test_limits_are_taken_from_the_form_in_which_they_are_recorded() -> None:
    limits = Limits.of(ManifestLimits().in_units())

    assert (limits.wall, limits.grace, limits.output, limits.line) == (3600, 5, 2**28, 2**24)
    assert limits.idle == {
        Phase.FIRST_TOKEN: 300,
        Phase.STREAMING: 180,
        Phase.TOOL: 1800,
        Phase.RATE_LIMITED: 600,
    }


def test_nothing_is_due_before_the_start() -> None:
    assert Deadlines(LIMITS).due(Phase.FIRST_TOKEN, 10**9) is None


@pytest.mark.parametrize("phase", Phase)
def test_the_idle_limit_is_that_of_the_phase(phase: Phase) -> None:
    deadlines = begun(100.0)

    assert deadlines.next(phase) == 100 + IDLE[phase]
    assert deadlines.due(phase, 100 + IDLE[phase] - 0.1) is None
    due = deadlines.due(phase, 100 + IDLE[phase])
    assert isinstance(due, LimitPassed)
    assert due.reason is Reason.IDLE
    assert "was silent for" in due.message


@pytest.mark.parametrize(
    ("phase", "words"),
    [
        (Phase.FIRST_TOKEN, "silent for 50s while waiting for the model's first token"),
        (Phase.STREAMING, "silent for 30s while streaming an answer"),
        (Phase.TOOL, "silent for 5m00s while running a tool"),
        (Phase.RATE_LIMITED, "silent for 1m40s while waiting out a rate limit"),
    ],
)
def test_the_message_says_what_the_harness_was_doing(phase: Phase, words: str) -> None:
    due = begun().due(phase, 10**3 - 1)

    assert isinstance(due, LimitPassed)
    assert words in due.message


def test_whatever_is_heard_restarts_the_idle_clock() -> None:
    deadlines = begun()

    deadlines.heard(29.0)

    assert deadlines.due(Phase.STREAMING, 58.9) is None
    assert deadlines.due(Phase.STREAMING, 59.0) is not None


def test_the_wall_limit_is_not_restarted() -> None:
    deadlines = begun()
    deadlines.heard(999.0)

    due = deadlines.due(Phase.STREAMING, 1000.0)

    assert due == LimitPassed(Reason.WALL, "the run took longer than its wall limit of 16m40s")


def test_the_wall_limit_goes_before_the_idle_limit() -> None:
    due = begun().due(Phase.STREAMING, 1000.0)

    assert isinstance(due, LimitPassed)
    assert due.reason is Reason.WALL


def test_a_limit_is_due_once() -> None:
    deadlines = begun()
    deadlines.due(Phase.STREAMING, 30.0)

    assert deadlines.due(Phase.STREAMING, 10**6) is None


def test_the_grace_is_due_when_it_is_over_and_once() -> None:
    deadlines = begun()

    deadlines.give_grace(10.0, 5.0)

    assert deadlines.due(Phase.STREAMING, 14.9) is None
    assert deadlines.due(Phase.STREAMING, 15.0) == GraceOver()
    assert deadlines.due(Phase.STREAMING, 16.0) is None


def test_a_grace_that_runs_is_only_ever_shortened() -> None:
    deadlines = begun()
    deadlines.give_grace(10.0, 5.0)

    deadlines.give_grace(11.0, 60.0)
    assert deadlines.next(Phase.TOOL) == 15.0
    deadlines.give_grace(12.0, 1.0)
    assert deadlines.next(Phase.TOOL) == 13.0


def test_no_limit_is_due_while_the_grace_runs() -> None:
    deadlines = begun()

    deadlines.give_grace(10.0, 10**6)

    assert deadlines.due(Phase.STREAMING, 10**5) is None


def test_the_grace_of_a_limit_follows_the_limit() -> None:
    deadlines = begun()
    deadlines.due(Phase.STREAMING, 30.0)

    deadlines.give_grace(30.0, 5.0)

    assert deadlines.due(Phase.STREAMING, 35.0) == GraceOver()
