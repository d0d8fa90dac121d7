"""The words of the one final status."""

from __future__ import annotations

import pytest

from capsule_runtime import Outcome, Reason
from capsule_runtime.core.finals import final_status
from capsule_runtime.core.outcome import OUTCOME_OF

CANCELED = "task canceled"
CANCELED_BY_KILL = "task canceled; the harness was killed and its session may not resume cleanly"

WORDS = {
    Reason.COMPLETED: ("completed", "session ended"),
    Reason.INTERRUPTED: ("canceled", CANCELED),
    Reason.KILLED: ("canceled", CANCELED),
    Reason.HANG_UP: ("canceled", CANCELED),
    Reason.TERMINATED: ("canceled", CANCELED),
    Reason.AUTH: ("failed", "error[E-RUN-033]: why"),
    Reason.QUOTA: ("failed", "error[E-RUN-033]: why"),
    Reason.RATE_LIMIT: ("failed", "error[E-RUN-033]: why"),
    Reason.MAX_TURNS: ("failed", "error[E-RUN-033]: why"),
    Reason.DECLINED: ("failed", "error[E-RUN-033]: why"),
    Reason.PERMISSION: ("failed", "error[E-RUN-033]: why"),
    Reason.CONTEXT_LENGTH: ("failed", "error[E-RUN-033]: why"),
    Reason.TRUNCATED: ("failed", "error[E-RUN-033]: why"),
    Reason.HARNESS_ERROR: ("failed", "error[E-RUN-033]: why"),
    Reason.OTHER: ("failed", "error[E-RUN-033]: why"),
    Reason.DRIVER_FAILED: ("failed", "error[E-RUN-034]: why"),
    Reason.IDLE: ("failed", "error[E-RUN-035]: why"),
    Reason.SESSION_GONE: ("failed", "error[E-RUN-036]: why"),
    Reason.INDETERMINATE: ("failed", "why"),
    Reason.LAUNCH_FAILED: ("failed", "why"),
    Reason.HOST_FAILED: ("failed", "why"),
    Reason.WALL: ("failed", "why"),
    Reason.OUTPUT: ("failed", "why"),
    Reason.MEMORY: ("failed", "why"),
    Reason.PROCESSES: ("failed", "why"),
    Reason.DISK: ("failed", "why"),
    Reason.LOST: ("failed", "why"),
    Reason.USD: ("failed", "why"),
    Reason.TOKENS: ("failed", "why"),
    Reason.TURNS: ("failed", "why"),
    Reason.TOOL_CALLS: ("failed", "why"),
}


def test_every_reason_has_its_words() -> None:
    assert set(WORDS) == set(Reason)


@pytest.mark.parametrize("reason", Reason)
def test_the_final_status_of_each_reason(reason: Reason) -> None:
    assert final_status(reason, "why", killed=False) == WORDS[reason]


@pytest.mark.parametrize("reason", Reason)
def test_a_kill_adds_its_clause_to_canceled_and_to_nothing_else(reason: Reason) -> None:
    state, words = WORDS[reason]
    if OUTCOME_OF[reason] is Outcome.CANCELED:
        words = CANCELED_BY_KILL

    assert final_status(reason, "why", killed=True) == (state, words)


@pytest.mark.parametrize("reason", [r for r in Reason if OUTCOME_OF[r] is Outcome.CANCELED])
def test_canceled_says_nothing_of_who_or_why(reason: Reason) -> None:
    assert "by hand" not in final_status(reason, "by hand", killed=False)[1]


def test_a_failure_without_a_message_is_its_code() -> None:
    assert final_status(Reason.OTHER, "", killed=False) == ("failed", "error[E-RUN-033]: ")
