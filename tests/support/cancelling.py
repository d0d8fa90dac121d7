"""Cancel a task at the n-th point at which it waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from typing import Any

import anyio

Work = Coroutine[Any, Any, None]


class Stepped:
    """A coroutine that is awaited as usual; each time that it waits, *at_wait* gets the count."""

    def __init__(self, work: Work, at_wait: Callable[[int], None]) -> None:
        self.waits = 0
        self._work = work
        self._at_wait = at_wait

    def __await__(self) -> Generator[Any, Any, None]:
        go_on: Callable[[], Any] = partial(self._work.send, None)
        while True:
            try:
                wanted = go_on()
            except StopIteration:
                return
            self.waits += 1
            self._at_wait(self.waits)
            try:
                go_on = partial(self._work.send, (yield wanted))
            except BaseException as thrown:
                if isinstance(thrown, GeneratorExit):
                    self._work.close()
                    raise
                go_on = partial(self._work.throw, thrown)


async def cancelled_by_scope(work: Work, at: int) -> bool:
    """Do *work*, cancelled at its wait *at* as a scope does; say whether it came to that."""
    scope = anyio.CancelScope()
    stepped = Stepped(work, lambda waits: scope.cancel() if waits == at else None)
    with scope:
        await stepped
    return stepped.waits >= at


async def cancelled_by_task(work: Work, at: int, times: int = 1) -> bool:
    """Do *work*, cancelled at its wait *at* by asyncio, which no scope of anyio's holds off.

    Beyond the first of *times*, it is cancelled at each further wait on its way out.
    """

    def at_wait(waits: int) -> None:
        if at <= waits < at + times:
            task.cancel()

    stepped = Stepped(work, at_wait)

    async def do() -> None:
        await stepped

    task = asyncio.create_task(do())
    (outcome,) = await asyncio.gather(task, return_exceptions=True)
    if outcome is not None and not isinstance(outcome, asyncio.CancelledError):
        raise outcome
    return stepped.waits >= at
