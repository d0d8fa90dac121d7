"""The words of the one final status, by reason."""

from __future__ import annotations

from typing import assert_never

from capsule_runtime.core.outcome import FAILED_BY_HARNESS, OUTCOME_OF, Outcome, Reason
from capsule_runtime.frames import FrameState

CANCELED = "task canceled"
CANCELED_BY_KILL = "task canceled; the harness was killed and its session may not resume cleanly"

_CODE_OF_REASON: dict[Reason, str] = {
    **dict.fromkeys(FAILED_BY_HARNESS, "E-RUN-033"),
    Reason.DRIVER_FAILED: "E-RUN-034",
    Reason.IDLE: "E-RUN-035",
    Reason.SESSION_GONE: "E-RUN-036",
}
# Nobody reported a failure here, so there is no code for one.
del _CODE_OF_REASON[Reason.INDETERMINATE]


def final_status(reason: Reason, message: str, *, killed: bool) -> tuple[FrameState, str]:
    """Return the state and message of the final status for a run that ended by *reason*."""
    outcome = OUTCOME_OF[reason]
    match outcome:
        case Outcome.COMPLETED:
            return "completed", "session ended"
        case Outcome.CANCELED:
            return "canceled", CANCELED_BY_KILL if killed else CANCELED
        case Outcome.REFUSED | Outcome.FAILED | Outcome.TIMED_OUT | Outcome.LIMITED | Outcome.LOST:
            code = _CODE_OF_REASON.get(reason)
            return "failed", f"error[{code}]: {message}" if code else message
        case _:
            assert_never(outcome)
