"""Wait for many pipes through one epoll.

Waking up costs more than reading: 200 trickling runs, each with its own wait, fill a core at 10 000
deltas a second. So the pipes of a supervisor share one epoll, and rounds of waking are at least
`ROUND_SECONDS` apart, unless a run floods (then it would only wait) or all have been at rest (the
first event after a rest is never delayed).
"""

from __future__ import annotations

import os
import select
import time

import anyio
import anyio.lowlevel

ROUND_SECONDS = 0.001
CHUNK_BYTES = 64 * 1024
_READY_MAX = 512
# The kernel reports the end of a pipe unasked: without this, for ever, once nobody reads it.
_AT_REST = select.EPOLLONESHOT


class Hub:
    """The one place that knows epoll. `run` must be running while anybody waits."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._armed: dict[int, anyio.Event] = {}
        self._flooded = False

    def add(self, fd: int) -> None:
        """Take over waiting for *fd*, which becomes non-blocking."""
        os.set_blocking(fd, False)
        self._epoll.register(fd, _AT_REST)

    def remove(self, fd: int) -> None:
        """Give *fd* up, before it is closed."""
        self._epoll.unregister(fd)

    def close(self) -> None:
        """Release the epoll; nobody waits any more."""
        self._epoll.close()

    async def read(self, fd: int) -> bytes:
        """Return the next chunk of *fd*, or b"" at its end."""
        while True:
            try:
                chunk = os.read(fd, CHUNK_BYTES)
            except BlockingIOError:
                await self._readable(fd)
                continue
            if len(chunk) * 2 >= CHUNK_BYTES:
                self._flooded = True
                await anyio.lowlevel.checkpoint()
            return chunk

    async def pause(self, fd: int, last_chunk: bytes) -> None:
        """Let a small *last_chunk* be followed by the next round, so that bytes gather meanwhile."""
        if len(last_chunk) * 2 < CHUNK_BYTES:
            await self._readable(fd)

    async def run(self) -> None:
        """Wake those whose pipe is ready, in rounds, for ever."""
        last_round = 0.0
        while True:
            if not (ready := self._epoll.poll(0, _READY_MAX)):
                await anyio.wait_readable(self._epoll.fileno())
                continue
            for fd, _ in ready:
                if event := self._armed.pop(fd, None):
                    event.set()
            rested = time.monotonic() - last_round > 2 * ROUND_SECONDS
            if self._flooded or rested:
                await anyio.lowlevel.checkpoint()
            else:
                await anyio.sleep(ROUND_SECONDS)
            self._flooded = False
            last_round = time.monotonic()

    async def _readable(self, fd: int) -> None:
        event = self._armed[fd] = anyio.Event()
        self._epoll.modify(fd, select.EPOLLIN | select.EPOLLONESHOT)
        try:
            await event.wait()
        finally:
            if self._armed.pop(fd, None) is not None:
                self._epoll.modify(fd, _AT_REST)  # cancelled before it was ready
