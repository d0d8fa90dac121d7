"""Tell followers in other processes that a run's log has grown.

The bell is a file; the writer rings it after each commit, followers watch it by inotify. One bell a
run, so that nobody wakes for a neighbour. A follower arms the watch and tells the owner (see
`audience`), then reads, then waits: what is committed in between rings. A writer may die between
commit and ring, hence the slow second look.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio

from capsule_runtime.host.private_files import make_private_directory, open_private_file
from capsule_runtime.host.store_errors import from_kernel

SECOND_LOOK_SECONDS = 1.0
DEAF_LOOK_SECONDS = 0.02
_IN_MODIFY = 0x2


def open_bell(path: Path) -> int:
    """Return a descriptor to ring the bell *path*, created with its directory if need be.

    Raises:
        StoreError: it cannot be created.
    """
    make_private_directory(path.parent)
    fd = open_private_file(path)
    try:
        # The first byte takes a block of the disk: better refused now than at each ring.
        os.pwrite(fd, b"x", 0)
    except OSError as error:
        os.close(fd)
        raise from_kernel(error, path) from error
    return fd


def remove_bell(fd: int, path: Path) -> None:
    """Undo `open_bell` for a run that was not created after all."""
    os.close(fd)
    path.unlink(missing_ok=True)
    # Somebody else may have put a file there; then the directory is theirs.
    with suppress(OSError):
        path.parent.rmdir()


def ring(fd: int) -> None:
    """Wake the followers of one run."""
    # The commit stands whatever the disk says now, and a lost ring costs followers a second.
    with suppress(OSError):
        os.pwrite(fd, b"x", 0)


class Bell:
    """A watch on one bell."""

    def __init__(self, inotify: int | None, data_version: Callable[[], int]) -> None:
        self._inotify = inotify
        self._data_version = data_version
        self._seen = data_version()
        self.ringer: str | None = None
        """The owner that was told to ring."""
        self.is_rung = True
        """Whether whoever writes is going to ring, as far as is known."""

    @property
    def is_deaf(self) -> bool:
        """Say whether nothing can be heard, so that `rung` looks 50 times a second."""
        return self._inotify is None or not self.is_rung

    async def rung(self) -> None:
        """Wait until the log may have grown since the last call, or since the watch was armed."""
        patience = DEAF_LOOK_SECONDS if self.is_deaf else SECOND_LOOK_SECONDS
        while True:
            with anyio.move_on_after(patience):
                await self._hear()
                self._seen = self._data_version()
                return
            if (version := self._data_version()) != self._seen:
                self._seen = version
                return

    async def _hear(self) -> None:
        if self._inotify is None:
            await anyio.sleep_forever()
        else:
            await anyio.wait_readable(self._inotify)
            # Rings that came in a row are one piece of news; what does not fit rings again.
            with suppress(BlockingIOError):
                os.read(self._inotify, 65536)


@asynccontextmanager
async def follow_bell(path: Path, data_version: Callable[[], int]) -> AsyncGenerator[Bell]:
    """Watch the bell *path*. *data_version* must come from one connection of this process."""
    inotify = _watch(path)
    try:
        yield Bell(inotify, data_version)
    finally:
        if inotify is not None:
            os.close(inotify)


def _watch(path: Path) -> int | None:
    # Only followers in other processes come here, and ctypes takes its time to import.
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    inotify: int = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if inotify < 0:
        return None
    watch: int = libc.inotify_add_watch(inotify, os.fsencode(path), _IN_MODIFY)
    if watch < 0:
        os.close(inotify)
        return None
    return inotify
