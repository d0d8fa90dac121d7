"""Wait for many pipes through one epoll.

Waking up costs more than reading: 200 trickling runs, each with its own wait, fill a core at 10 000
deltas a second. So the pipes of a supervisor share one epoll, and rounds are at least
`ROUND_SECONDS` apart, unless a run floods (then it would only wait) or all have been at rest (the
first event after a rest is never delayed). What is small and needs no waiting for is taken in the
round itself, and its reader sleeps on.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import anyio
import anyio.lowlevel

from capsule_runtime.host.waiting import Waiting, waiting

Take = Callable[[bytes], bool]
"""Take a chunk here and now; False leaves it to whoever reads the pipe."""

ROUND_SECONDS = 0.0006
FLOOD_ROUND_SECONDS = 0.001
"""While a run floods beside others: the time to write what it says is theirs too."""
CHUNK_BYTES = 64 * 1024
SHARED_CHUNK_BYTES = 12 * 1024
"""How much is read at a time while several are ready, so that a flood does not keep neighbours
waiting. It still gets that much a round."""
_READY_MAX = 512
# Reported at most once more, even at the end of a pipe, which the kernel else repeats for ever.
_MUTED = select.EPOLLONESHOT


class Hub:
    """The one place that knows epoll. `run` must be running while anybody waits."""

    def __init__(self, together: Callable[[], AbstractContextManager[None]] = nullcontext) -> None:
        """*together* goes round what is taken in one round."""
        self.served_at = 0.0
        """When somebody was read last, on the monotonic clock."""
        self._together = together
        self._epoll = select.epoll()
        self._waiting: dict[int, Waiting] = {}
        self._takers: dict[int, Take] = {}
        self._left: dict[int, bytes] = {}
        self._muted: set[int] = set()
        self._flooded = False
        self._is_full = False
        self._chunk_bytes = CHUNK_BYTES

    def add(self, fd: int) -> None:
        """Take over waiting for *fd*, which becomes non-blocking."""
        os.set_blocking(fd, False)
        self._epoll.register(fd, select.EPOLLIN)

    def remove(self, fd: int) -> None:
        """Give *fd* up, before it is closed."""
        self._epoll.unregister(fd)
        self._muted.discard(fd)
        self._takers.pop(fd, None)
        self._left.pop(fd, None)

    def offer(self, fd: int, take: Take) -> None:
        """Offer small chunks of *fd* to *take* first, while its reader waits."""
        self._takers[fd] = take

    def close(self) -> None:
        """Release the epoll; nobody waits any more."""
        self._epoll.close()

    async def read(self, fd: int, last_bytes: int) -> bytes:
        """Return the next chunk of *fd*, or b"" at its end.

        If the last one had few bytes it waits for the next round, so that they gather meanwhile.
        """
        wait = last_bytes * 2 < CHUNK_BYTES
        while True:
            if wait:
                await self._readable(fd)
            chunk = self._left.pop(fd, None)
            if chunk is None:
                try:
                    chunk = os.read(fd, self._chunk_bytes)
                except BlockingIOError:
                    wait = True
                    continue
            if len(chunk) * 2 >= CHUNK_BYTES:
                self._flooded = True
                await anyio.lowlevel.checkpoint()
            return chunk

    async def run(self) -> None:
        """Wake those whose pipe is ready, in rounds, for ever."""
        while True:
            if not (ready := self._epoll.poll(0, _READY_MAX)):
                await anyio.wait_readable(self._epoll.fileno())
                continue
            self._chunk_bytes = CHUNK_BYTES if len(ready) == 1 else SHARED_CHUNK_BYTES
            with self._together():
                for fd, _ in ready:
                    self._serve(fd)
            rested = time.monotonic() - self.served_at > 2 * ROUND_SECONDS
            if self._flooded or rested:
                await anyio.lowlevel.checkpoint()
            else:
                await anyio.sleep(FLOOD_ROUND_SECONDS if self._is_full else ROUND_SECONDS)
            self._flooded = self._is_full = False
            self.served_at = time.monotonic()

    def _serve(self, fd: int) -> None:
        if reader := self._waiting.get(fd):
            if not self._is_taken(fd):
                del self._waiting[fd]
                reader.wake()
        elif fd not in self._muted:
            # Nobody wants it now. A pipe that is read as it fills never comes here, and so is
            # never told to the kernel anew.
            self._epoll.modify(fd, _MUTED)
            self._muted.add(fd)

    def _is_taken(self, fd: int) -> bool:
        """Have what *fd* holds taken at once; what is not taken waits for its reader."""
        if (take := self._takers.get(fd)) is None:
            return False
        try:
            chunk = os.read(fd, self._chunk_bytes)
        except BlockingIOError:
            return True
        self._is_full = self._is_full or len(chunk) == self._chunk_bytes
        if chunk and len(chunk) * 2 < CHUNK_BYTES and take(chunk):
            return True
        self._left[fd] = chunk
        return False

    async def _readable(self, fd: int) -> None:
        if fd in self._muted:
            self._muted.remove(fd)
            self._epoll.modify(fd, select.EPOLLIN)
        reader = self._waiting[fd] = waiting()
        try:
            await reader.wait()
        finally:
            self._waiting.pop(fd, None)
