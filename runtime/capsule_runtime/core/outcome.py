"""How a run can end, and what a shell learns of it."""

from __future__ import annotations

from enum import StrEnum


class Outcome(StrEnum):
    """How a run ended. The set is closed."""

    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"
    REFUSED = "refused"
    TIMED_OUT = "timed-out"
    LIMITED = "limited"
    LOST = "lost"


class Reason(StrEnum):
    """Why a run ended as it did. The set is closed; each reason belongs to one outcome."""

    COMPLETED = "completed"
    AUTH = "auth"
    QUOTA = "quota"
    RATE_LIMIT = "rate-limit"
    MAX_TURNS = "max-turns"
    DECLINED = "declined"
    PERMISSION = "permission"
    CONTEXT_LENGTH = "context-length"
    TRUNCATED = "truncated"
    SESSION_GONE = "session-gone"
    INDETERMINATE = "indeterminate"
    HARNESS_ERROR = "harness-error"
    OTHER = "other"
    LAUNCH_FAILED = "launch-failed"
    DRIVER_FAILED = "driver-failed"
    HOST_FAILED = "host-failed"
    INTERRUPTED = "interrupted"
    KILLED = "killed"
    HANG_UP = "hang-up"
    TERMINATED = "terminated"
    WALL = "wall"
    IDLE = "idle"
    OUTPUT = "output"
    MEMORY = "memory"
    PROCESSES = "processes"
    DISK = "disk"
    LOST = "lost"
    USD = "usd"
    TOKENS = "tokens"
    TURNS = "turns"
    TOOL_CALLS = "tool-calls"


FAILED_BY_HARNESS = frozenset(
    {
        Reason.AUTH,
        Reason.QUOTA,
        Reason.RATE_LIMIT,
        Reason.MAX_TURNS,
        Reason.DECLINED,
        Reason.PERMISSION,
        Reason.CONTEXT_LENGTH,
        Reason.TRUNCATED,
        Reason.SESSION_GONE,
        Reason.INDETERMINATE,
        Reason.HARNESS_ERROR,
        Reason.OTHER,
    }
)

OUTCOME_OF: dict[Reason, Outcome] = {
    Reason.COMPLETED: Outcome.COMPLETED,
    **dict.fromkeys(FAILED_BY_HARNESS, Outcome.FAILED),
    Reason.LAUNCH_FAILED: Outcome.FAILED,
    Reason.DRIVER_FAILED: Outcome.FAILED,
    Reason.HOST_FAILED: Outcome.FAILED,
    Reason.INTERRUPTED: Outcome.CANCELED,
    Reason.KILLED: Outcome.CANCELED,
    Reason.HANG_UP: Outcome.CANCELED,
    Reason.TERMINATED: Outcome.CANCELED,
    Reason.WALL: Outcome.TIMED_OUT,
    Reason.IDLE: Outcome.TIMED_OUT,
    Reason.OUTPUT: Outcome.LIMITED,
    Reason.MEMORY: Outcome.LIMITED,
    Reason.PROCESSES: Outcome.LIMITED,
    Reason.DISK: Outcome.LIMITED,
    Reason.LOST: Outcome.LOST,
    Reason.USD: Outcome.REFUSED,
    Reason.TOKENS: Outcome.REFUSED,
    Reason.TURNS: Outcome.REFUSED,
    Reason.TOOL_CALLS: Outcome.REFUSED,
}
"""Which outcome each reason belongs to."""

_EXIT_OF_OUTCOME: dict[Outcome, int] = {
    Outcome.COMPLETED: 0,
    Outcome.FAILED: 1,
    Outcome.CANCELED: 130,
    Outcome.REFUSED: 3,
    Outcome.TIMED_OUT: 124,
    Outcome.LIMITED: 11,
    Outcome.LOST: 9,
}
_EXIT_OF_REASON: dict[Reason, int] = {
    Reason.AUTH: 8,
    Reason.PERMISSION: 5,
    Reason.INDETERMINATE: 9,
    Reason.LAUNCH_FAILED: 8,
    Reason.HOST_FAILED: 10,
    Reason.KILLED: 137,
    Reason.HANG_UP: 129,
    Reason.TERMINATED: 143,
}


def exit_code(outcome: Outcome, reason: Reason) -> int:
    """Return the exit status that stands for *outcome* and *reason*."""
    return _EXIT_OF_REASON.get(reason, _EXIT_OF_OUTCOME[outcome])
