"""Two locks: who owns runs (for a supervisor's life) and who commits (for a transaction).

Both vanish with the process that holds them, however it dies. Owner locks are OFD locks, so a
second descriptor in the same process counts as somebody else and a close elsewhere frees nothing.
"""

from __future__ import annotations

import fcntl
import os
import struct
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

import anyio

from capsule_runtime.errors import StoreError
from capsule_runtime.host.private_files import open_private_file
from capsule_runtime.host.store_errors import locked

STRANGER_SECONDS = 5.0
"""How long a lock may be held by others before we say so."""

_RETRY_SECONDS = 0.0002
_OWNER_RETRY_SECONDS = 0.01
_FLOCK = struct.Struct("@hhqqi0q")


class OwnerLock:
    """The sign of life of a supervisor, or of whoever acts in its place."""

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self._fd = fd

    def release(self) -> None:
        """Remove the file, then let go. A second call does nothing."""
        if self._fd >= 0:
            self.path.unlink(missing_ok=True)
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def try_take(path: Path) -> OwnerLock | None:
    """Take the lock *path* at once, or return None because somebody holds it.

    Raises:
        StoreError: the file cannot be opened.
    """
    while True:
        fd = open_private_file(path)
        try:
            _ofd(fd, fcntl.F_OFD_SETLK, fcntl.F_WRLCK)
        except BlockingIOError:
            os.close(fd)
            return None
        if _is_still(path, fd):
            return OwnerLock(path, fd)
        # Its last holder removed the file while we waited: a lock on it would bind nobody.
        os.close(fd)


async def take(path: Path, patience: float) -> OwnerLock | None:
    """Take the lock *path* as soon as it is free, or return None after *patience* seconds.

    Raises:
        StoreError: the file cannot be opened.
    """
    lock = try_take(path)
    with anyio.move_on_after(patience):
        # The kernel tells nobody that an OFD lock came free without blocking a thread for it.
        while lock is None:
            await anyio.sleep(_OWNER_RETRY_SECONDS)
            lock = try_take(path)
    return lock


def is_free(path: Path) -> bool:
    """Say whether nobody holds the lock *path*. A file that is gone is free."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    try:
        return _ofd(fd, fcntl.F_OFD_GETLK, fcntl.F_WRLCK) == fcntl.F_UNLCK
    finally:
        os.close(fd)


def remove_if_free(path: Path) -> None:
    """Remove the lock file *path*, unless somebody still holds the lock."""
    # The only way to know is to take it; a disk that has no room for it has none to remove.
    with suppress(StoreError):
        if (lock := try_take(path)) is not None:
            lock.release()


class CommitLock:
    """One writer at a time among all processes, and one checkpointer: SQLite needs no more.

    SQLite before 3.51.3 can damage a WAL when a commit meets a checkpoint, and its busy handler
    starves. The lock is a `flock`; to reach it one passes a turnstile, an OFD lock on the same
    file. Whoever waits for the `flock` stands in the turnstile, so the last holder cannot overtake:
    a wait is one commit of each other process long, not a matter of luck.
    """

    def __init__(self, path: Path, patience: float = STRANGER_SECONDS) -> None:
        self.path = path
        self._patience = patience
        self._fd = open_private_file(path)

    @contextmanager
    def held(self) -> Generator[None]:
        """Hold the lock.

        Raises:
            StoreError: E-STO-007, it was not to be had within the patience.
        """
        deadline = time.monotonic() + self._patience
        self._insist(lambda: _ofd(self._fd, fcntl.F_OFD_SETLK, fcntl.F_WRLCK), deadline)
        try:
            self._insist(lambda: fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB), deadline)
        finally:
            _ofd(self._fd, fcntl.F_OFD_SETLK, fcntl.F_UNLCK)
        try:
            yield
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)

    def _insist(self, take: Callable[[], object], deadline: float) -> None:
        while True:
            try:
                take()
                return
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise locked(self.path, self._patience) from None
            # A blocking call cannot be given a deadline; with a turnstile, trying again is fair.
            time.sleep(_RETRY_SECONDS)


def _ofd(fd: int, command: int, kind: int) -> int:
    answer = fcntl.fcntl(fd, command, _FLOCK.pack(kind, os.SEEK_SET, 0, 1, 0))
    found: int = _FLOCK.unpack(answer)[0]
    return found


def _is_still(path: Path, fd: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(fd))
    except FileNotFoundError:
        return False
