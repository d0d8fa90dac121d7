"""One thread that writes to one descriptor, in the order it was asked to.

A reader of our output may be slow, stuck or gone. The thread takes that upon itself with plain
blocking writes (the descriptor is shared with the shell, so its flags are not ours to change). The
event loop never blocks: it puts bytes in a queue, and waits only when that is full.
"""

from __future__ import annotations

import errno
import os
import signal
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from queue import SimpleQueue

import anyio

from capsule_runtime.cli.reader import reader_gone

QUEUE_BYTES = 1024 * 1024
LAST_WORDS_SECONDS = 0.5
"""How long a stuck reader may keep us from leaving."""


class Sink:
    """Where output goes. Made by `open_sink`."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.failure: OSError | None = None
        """Why nothing can be written any more; what comes later is dropped."""
        self._queue: SimpleQueue[bytes | None] = SimpleQueue()
        self._put_bytes = 0  # written by the loop alone
        self._written_bytes = 0  # written by the thread alone
        self._awaited = False
        self._progress = anyio.Event()
        self._wake_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        # A daemon: one that is stuck in a write must not keep the process from ending.
        self._thread = threading.Thread(target=self._write_all, name=f"sink-{fd}", daemon=True)

    @property
    def is_idle(self) -> bool:
        """Tell whether all that was put is written."""
        return self._put_bytes == self._written_bytes

    def put(self, data: bytes) -> None:
        """Queue *data*, however full the queue is. For small things that must not wait."""
        self._put_bytes += len(data)
        self._queue.put(data)

    async def write(self, data: bytes) -> None:
        """Queue *data* once there is room for it."""
        await self._until(lambda: self._put_bytes - self._written_bytes < QUEUE_BYTES)
        self.put(data)

    async def drained(self) -> None:
        """Wait until all that was put is written, or cannot be."""
        await self._until(lambda: self.is_idle)

    async def failed(self) -> OSError:
        """Wait until nothing can be written any more and return why; maybe for ever."""
        while self.failure is None:
            await self._progress.wait()
        return self.failure

    async def watch(self, scope: anyio.CancelScope) -> None:
        """Tell those who wait what came of their bytes, until *scope* is cancelled."""
        with scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._watch_reader)
                while True:
                    await anyio.wait_readable(self._wake_fd)
                    os.eventfd_read(self._wake_fd)
                    self._tell_progress()

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def close(self) -> None:
        """End the thread once it has written what is queued; do not wait if it is stuck."""
        self._queue.put(None)
        if self.is_idle:
            self._thread.join(LAST_WORDS_SECONDS)
        if not self._thread.is_alive():
            os.close(self._wake_fd)

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            progress, self._awaited = self._progress, True
            # Looked at again after asking to be woken: the thread may have got there in between.
            if not condition():
                await progress.wait()

    async def _watch_reader(self) -> None:
        """Fail as soon as the reader leaves, though nothing may be written for a long time."""
        await reader_gone(self.fd)
        if self.failure is None:
            self.failure = BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
            self._tell_progress()

    def _tell_progress(self) -> None:
        progress, self._progress = self._progress, anyio.Event()
        progress.set()

    def _write_all(self) -> None:
        # Signals are for the main thread, which blocks them while it changes what they mean.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        while (data := self._queue.get()) is not None:
            if self.failure is None:
                self._write(data)
            self._written_bytes += len(data)
            if self._awaited:
                self._awaited = False
                os.eventfd_write(self._wake_fd, 1)

    def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(self.fd, rest) :]
        except OSError as exc:
            self.failure = exc
            self._awaited = True


@asynccontextmanager
async def open_sink(fd: int) -> AsyncGenerator[Sink]:
    """Write to *fd* in a thread of its own for as long as the context lasts.

    Leaving waits only a moment for a stuck reader: whoever wants all of it read awaits `drained`.
    """
    sink, watching = Sink(fd), anyio.CancelScope(shield=True)
    sink.start()
    try:
        async with anyio.create_task_group() as tasks:
            try:
                tasks.start_soon(sink.watch, watching)
                yield sink
            finally:
                # The loop's own Ctrl-C cancels this task in spite of the shield.
                try:
                    with anyio.move_on_after(LAST_WORDS_SECONDS, shield=True):
                        await sink.drained()
                finally:
                    watching.cancel()
    finally:
        sink.close()
