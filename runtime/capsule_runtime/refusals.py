"""Why the store did not create a run, as the error that its caller gets."""

from __future__ import annotations

from typing import assert_never

from capsule_runtime.core.ceilings import DayReached
from capsule_runtime.errors import CapsuleError, SpendError, UsageError
from capsule_runtime.host.rows import ContextBusy, ContextDiffers


def not_created(why: ContextBusy | ContextDiffers | DayReached, context: str) -> CapsuleError:
    """Return the error for a run that was not created in *context*."""
    match why:
        case ContextBusy(other):
            return UsageError(
                "E-USE-010",
                f"context {context!r} is busy with {other}",
                "Wait for it with --wait, interrupt it, or leave --context out.",
            )
        case ContextDiffers(found):
            return UsageError(
                "E-USE-013",
                f"context {context!r} belongs to the driver {found.driver!r}",
                "A context keeps its driver; take another context.",
            )
        case DayReached():
            return SpendError(
                "E-SPE-002", why.refusal, "Wait for the next day in UTC, or raise the ceiling."
            )
        case _:
            assert_never(why)
