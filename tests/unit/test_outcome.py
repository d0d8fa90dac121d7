"""How a run can end, and what a shell learns of it."""

from __future__ import annotations

import pytest

from capsule_runtime import (
    CapsuleError,
    ContainmentError,
    FailureKind,
    HarnessError,
    HostError,
    ManifestError,
    Outcome,
    Reason,
    StoreError,
    UsageError,
    exit_code,
)
from capsule_runtime.core.outcome import FAILED_BY_HARNESS, OUTCOME_OF

# The one table of the exit codes of a run.
CODES = {
    Reason.COMPLETED: 0,
    Reason.QUOTA: 1,
    Reason.RATE_LIMIT: 1,
    Reason.MAX_TURNS: 1,
    Reason.DECLINED: 1,
    Reason.CONTEXT_LENGTH: 1,
    Reason.TRUNCATED: 1,
    Reason.SESSION_GONE: 1,
    Reason.HARNESS_ERROR: 1,
    Reason.OTHER: 1,
    Reason.DRIVER_FAILED: 1,
    Reason.USD: 3,
    Reason.TOKENS: 3,
    Reason.TURNS: 3,
    Reason.TOOL_CALLS: 3,
    Reason.PERMISSION: 5,
    Reason.AUTH: 8,
    Reason.LAUNCH_FAILED: 8,
    Reason.LOST: 9,
    Reason.INDETERMINATE: 9,
    Reason.HOST_FAILED: 10,
    Reason.OUTPUT: 11,
    Reason.MEMORY: 11,
    Reason.PROCESSES: 11,
    Reason.DISK: 11,
    Reason.WALL: 124,
    Reason.IDLE: 124,
    Reason.HANG_UP: 129,
    Reason.INTERRUPTED: 130,
    Reason.KILLED: 137,
    Reason.TERMINATED: 143,
}
OUTCOMES = {
    Outcome.COMPLETED: {Reason.COMPLETED},
    Outcome.FAILED: {
        *FAILED_BY_HARNESS,
        Reason.LAUNCH_FAILED,
        Reason.DRIVER_FAILED,
        Reason.HOST_FAILED,
    },
    Outcome.CANCELED: {Reason.INTERRUPTED, Reason.KILLED, Reason.HANG_UP, Reason.TERMINATED},
    Outcome.REFUSED: {Reason.USD, Reason.TOKENS, Reason.TURNS, Reason.TOOL_CALLS},
    Outcome.TIMED_OUT: {Reason.WALL, Reason.IDLE},
    Outcome.LIMITED: {
        Reason.OUTPUT,
        Reason.MEMORY,
        Reason.PROCESSES,
        Reason.DISK,
    },
    Outcome.LOST: {Reason.LOST},
}


def test_every_reason_has_an_exit_code_in_the_table() -> None:
    assert set(CODES) == set(Reason)


@pytest.mark.parametrize("reason", Reason)
def test_the_exit_code_of_each_reason(reason: Reason) -> None:
    assert exit_code(OUTCOME_OF[reason], reason) == CODES[reason]


@pytest.mark.parametrize("outcome", Outcome)
def test_each_outcome_has_its_reasons(outcome: Outcome) -> None:
    assert {reason for reason, of in OUTCOME_OF.items() if of is outcome} == OUTCOMES[outcome]


def test_every_reason_has_one_outcome() -> None:
    assert set(OUTCOME_OF) == set(Reason)


@pytest.mark.parametrize("kind", FailureKind)
def test_every_failure_kind_is_a_reason_of_the_same_word(kind: FailureKind) -> None:
    assert Reason(kind.value) in FAILED_BY_HARNESS


def test_a_harness_can_name_no_other_failure() -> None:
    assert {reason.value for reason in FAILED_BY_HARNESS} == {kind.value for kind in FailureKind}


def test_outcomes_are_a_closed_set() -> None:
    assert [outcome.value for outcome in Outcome] == [
        "completed",
        "failed",
        "canceled",
        "refused",
        "timed-out",
        "limited",
        "lost",
    ]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (UsageError, 2),
        (ManifestError, 2),
        (ContainmentError, 6),
        (HarnessError, 8),
        (HostError, 10),
        (StoreError, 10),
        (CapsuleError, 70),
    ],
)
def test_the_exit_code_of_each_error(error: type[CapsuleError], status: int) -> None:
    assert error.exit_status == status


def test_an_error_shows_its_code_and_its_message() -> None:
    error = UsageError("E-USE-001", "3 runs match 'run_0'", "Write more of it.")

    assert str(error) == "error[E-USE-001]: 3 runs match 'run_0'"
    assert (error.code, error.message, error.hint) == (
        "E-USE-001",
        "3 runs match 'run_0'",
        "Write more of it.",
    )
