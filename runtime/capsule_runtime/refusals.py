"""Why the store did not create a run, as the error that its caller gets."""

from __future__ import annotations

import shlex
from typing import assert_never

from capsule_runtime.core.ceilings import DayReached
from capsule_runtime.core.setting import Difference, difference
from capsule_runtime.errors import CapsuleError, SpendError, UsageError
from capsule_runtime.host.rows import ContextBusy, ContextDiffers, ContextRow

_NAMES = {"tier": "tier class", "workdir": "work directory", "home": "HOME"}


def not_created(why: ContextBusy | ContextDiffers | DayReached, mine: ContextRow) -> CapsuleError:
    """Return the error for a run that was not created in *mine*, the context as the run has it."""
    context = mine.name
    match why:
        case ContextBusy(other):
            return UsageError(
                "E-USE-010",
                f"context {context!r} is busy with {other}",
                "Wait for it with --wait, interrupt it, or leave --context out.",
            )
        case ContextDiffers(found):
            other_place = difference(found.setting, mine.setting)
            if (found.uuid, found.driver) == (mine.uuid, mine.driver) and other_place is not None:
                return _elsewhere(other_place, context)
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


def _elsewhere(found: Difference, context: str) -> UsageError:
    """Return the error for a run that would not take place where its context does."""
    fixes = {
        "tier": f"Pass --containment {'sealed' if found.has == 'sealed' else 'scoped'}",
        "workdir": f"Pass --workdir {shlex.quote(found.has)}",
        "home": "Run it with the state directory where it was",
    }
    return UsageError(
        "E-USE-014",
        f"context {context!r} has the {_NAMES[found.field]} {found.has},"
        f" and this run would have {found.would}",
        f"{fixes[found.field]}, or leave --context out to begin a new one.",
    )
