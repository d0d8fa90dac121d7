"""Wait in one place for news that come often, the same way on asyncio and trio.

An `anyio.Event` can be set once, so each wait would need a new one, which on asyncio is four objects
deep. With 200 busy followers that alone makes Python's collector sweep through all that lives, for
45 ms, every few seconds.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

import anyio

if TYPE_CHECKING:
    import asyncio


class Waiting(Protocol):
    """Where tasks wait for the next `wake`."""

    async def wait(self) -> None:
        """Wait for the next `wake`."""
        ...

    def wake(self) -> None:
        """Let all go on that wait now."""
        ...


class _WaitingOnAsyncio:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._futures: list[asyncio.Future[None]] = []

    async def wait(self) -> None:
        future: asyncio.Future[None] = self._loop.create_future()
        self._futures.append(future)
        await future

    def wake(self) -> None:
        for future in self._futures:
            if not future.done():  # or else whoever waited was cancelled
                future.set_result(None)
        self._futures.clear()


class _WaitingOnTrio:
    def __init__(self) -> None:
        import trio

        self._lot = trio.lowlevel.ParkingLot()

    async def wait(self) -> None:
        await self._lot.park()

    def wake(self) -> None:
        self._lot.unpark_all()


def waiting() -> Waiting:
    """Return a place to wait in, for the event loop that runs in this thread."""
    # A program that never imported trio cannot be running on it.
    if "trio" in sys.modules:
        import trio

        with suppress(RuntimeError):
            trio.lowlevel.current_trio_token()
            return _WaitingOnTrio()
    import asyncio

    return _WaitingOnAsyncio(asyncio.get_running_loop())


class Once:
    """Something that happens once. Only who waits for it costs an event, which is 760 bytes."""

    __slots__ = ("_event", "_has_happened")

    def __init__(self) -> None:
        self._has_happened = False
        self._event: anyio.Event | None = None

    def set(self) -> None:
        """Say that it has happened. A second time changes nothing."""
        self._has_happened = True
        if self._event is not None:
            self._event.set()

    def is_set(self) -> bool:
        """Tell whether it has happened."""
        return self._has_happened

    async def wait(self) -> None:
        """Wait until it has happened."""
        if not self._has_happened:
            self._event = self._event or anyio.Event()
            await self._event.wait()
