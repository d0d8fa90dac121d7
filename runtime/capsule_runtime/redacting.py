"""Which secrets a run has, as it was asked for."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from capsule_runtime.request import Ready

if TYPE_CHECKING:
    from capsule_runtime.core.redacted_run import RedactedRun
    from capsule_runtime.core.redactor import Redactor


def redactor_of(ready: Ready) -> Redactor | None:
    """Return what keeps the secrets of a run to itself; None for the many that have none."""
    if not (env := ready.env):
        return None
    from capsule_runtime.core.secrets import secrets_of  # only some runs are given anything

    secrets = secrets_of(env, {*ready.grants.secrets, *ready.capsule.described.keys})
    if not secrets:
        return None
    from capsule_runtime.core.redactor import Redactor

    return Redactor(secrets)


def redacted_run(redactor: Redactor) -> partial[RedactedRun]:
    """Return what makes a run that *redactor* keeps the secrets of."""
    from capsule_runtime.core.redacted_run import RedactedRun

    return partial(RedactedRun, redactor)
