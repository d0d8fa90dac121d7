"""Finish what must be finished, whatever happens to whoever waits for it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio

from capsule_runtime.errors import CapsuleError


async def finish(work: Callable[[], Awaitable[object]]) -> None:
    """Do *work*, which must be bounded, to its end, also if the caller is cancelled meanwhile.

    asyncio's own cancellation, of a task and not of a scope, heeds no shield: `wait_for` and Ctrl-C
    use it. So the work is done by another task, and a task group waits for it however often it is
    told not to.

    Raises:
        CapsuleError: what *work* raised.
    """
    failures: list[CapsuleError] = []

    async def shielded() -> None:
        with anyio.CancelScope(shield=True):
            try:
                await work()
            except CapsuleError as failure:
                failures.append(failure)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(shielded)
    for failure in failures:
        raise failure
