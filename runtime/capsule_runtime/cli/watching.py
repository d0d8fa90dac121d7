"""Watch a run that another process owns. Whatever makes us leave, the run goes on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import Enum, auto
from signal import Signals

import anyio

from capsule_runtime.cli.screen import Screen
from capsule_runtime.cli.signals import heeded_signals


class Left(Enum):
    """Why a watch was over, other than by a signal."""

    AT_THE_END = auto()
    UNREAD = auto()


async def watch(show: Callable[[], Awaitable[None]], screen: Screen) -> Left | Signals:
    """Do *show* and return why it is over; it is cancelled on a signal, and when nobody reads."""
    left: Left | Signals = Left.AT_THE_END
    with heeded_signals() as signals:
        async with anyio.create_task_group() as tasks:

            async def leave_on_signal() -> None:
                nonlocal left
                async for received in signals:
                    left = received
                    tasks.cancel_scope.cancel()

            async def leave_unread() -> None:
                nonlocal left
                await screen.out.failed()
                left = Left.UNREAD
                tasks.cancel_scope.cancel()

            tasks.start_soon(leave_on_signal)
            tasks.start_soon(leave_unread)
            await show()
            tasks.cancel_scope.cancel()
    return left
