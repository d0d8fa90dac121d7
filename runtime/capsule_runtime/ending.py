"""End the runs of a supervisor that is closed, and those that nobody waited for."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

import anyio

from capsule_runtime.active_run import ActiveRun
from capsule_runtime.core.outcome import Reason
from capsule_runtime.errors import StoreError

URGENT_GRACE_SECONDS = 4.0
"""The grace when the supervisor itself is told to stop: a CI runner waits 7.5 s in all."""


async def end_all(runs: Iterable[ActiveRun]) -> None:
    """Stop *runs* as one batch, and wait for their recorded ends."""
    async with anyio.create_task_group() as ends:
        for active in runs:
            ends.start_soon(_end, active)


async def end_unwanted(active: ActiveRun) -> None:
    """Stop a run whose caller was cancelled before it got it."""
    # A log that cannot be written ends its run; whoever waits for the run hears of it.
    with suppress(StoreError):
        await active.stop(Reason.INTERRUPTED, "whoever started it was cancelled")


async def _end(active: ActiveRun) -> None:
    with suppress(StoreError):  # as above
        await active.stop(
            Reason.TERMINATED, "the supervisor was closed", grace=URGENT_GRACE_SECONDS
        )
    await active.over()
