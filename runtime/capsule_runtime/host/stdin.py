"""What is written to a harness, which may read it late or never."""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine
from typing import Any

import anyio

WAITING_BYTES = 1024 * 1024
"""How much may wait for a harness that does not read; a task of any size is let in."""

Start = Callable[[Callable[[], Coroutine[Any, Any, None]]], object]
"""Begin something, as a task of whoever gives it."""


class Stdin:
    """The harness's stdin: bytes wait here while the harness does not read.

    Not many of them: a harness can ask and ask and never take an answer. A task waits with them
    only while there are some.
    """

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd: int | None = fd
        self._pending: list[memoryview] = []
        self._pending_bytes = 0
        self.dropped_bytes = 0
        self._start: Start | None = None
        self._has_task = False
        self._ends = False

    def send(self, data: bytes) -> None:
        """Queue *data*; after `end` it is dropped, because nobody reads any more."""
        if self._ends:
            return
        if self._pending_bytes >= WAITING_BYTES:
            self.dropped_bytes += len(data)
            return
        self._pending.append(memoryview(data))
        self._pending_bytes += len(data)
        self._go_on()

    def end(self) -> None:
        """Close once all that was queued is written."""
        self._ends = True
        self._go_on()

    def serve(self, start: Start) -> None:
        """Write from now on; *start* begins a task whenever the harness does not read."""
        self._start = start
        self._go_on()

    def close(self) -> None:
        """Close now; what was not written is lost."""
        self._ends = True
        self._pending.clear()
        if self._fd is not None:
            fd, self._fd = self._fd, None
            os.close(fd)

    def _go_on(self) -> None:
        if self._start is not None and not self._has_task and not self._is_written():
            self._has_task = True
            self._start(self._wait_and_write)

    async def _wait_and_write(self) -> None:
        while self._fd is not None and not self._is_written():
            await anyio.wait_writable(self._fd)
        self._has_task = False

    def _is_written(self) -> bool:
        """Write what the harness's pipe takes; return whether nothing is left to write."""
        while self._fd is not None and self._pending:
            try:
                written = os.write(self._fd, self._pending[0])
            except BlockingIOError:
                return False
            except BrokenPipeError:
                self.close()
                return True
            self._pending_bytes -= written
            rest = self._pending.pop(0)[written:]
            if rest:
                self._pending.insert(0, rest)
        if self._ends:
            self.close()
        return True
