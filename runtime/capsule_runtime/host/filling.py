"""Fill one file with the contents of another: sharing its blocks where that can be, holes kept."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable

BLOCK = 512
_FICLONE = 0x40049409
_CHUNK = 1024 * 1024


class TooLarge(Exception):
    """The work directory is larger than what is copied."""


class Stopped(Exception):
    """Somebody wants no copy any more."""


class Filler:
    """Fill many files, of one file system into one other."""

    def __init__(self, stopped: Callable[[], bool]) -> None:
        self.cloned = 0
        """How many share their blocks with what they were filled from."""
        self._clones = True
        self._stopped = stopped

    def fill(self, source: int, target: int, status: os.stat_result) -> None:
        """Give the empty file *target* the contents of *source*, as *status* has it.

        Raises:
            Stopped: somebody wants no copy any more.
            OSError: the disk refuses.
        """
        if not status.st_size:
            return
        if self._clones and self._clone(source, target):
            self.cloned += 1
        elif status.st_blocks * BLOCK < status.st_size:
            self._fill_parts(source, target, status.st_size)
        else:
            self._fill_range(source, target, 0, status.st_size)

    def _clone(self, source: int, target: int) -> bool:
        try:
            fcntl.ioctl(target, _FICLONE, source)
        except OSError as exc:
            if exc.errno in (errno.ENOSPC, errno.EDQUOT):
                raise
            # A file system that cannot will not learn it for the next file.
            self._clones = exc.errno not in (errno.EOPNOTSUPP, errno.ENOTTY, errno.EXDEV)
            return False
        return True

    def _fill_parts(self, source: int, target: int, size: int) -> None:
        """Copy what is no hole."""
        os.ftruncate(target, size)
        start = 0
        while start < size:
            try:
                start = os.lseek(source, start, os.SEEK_DATA)
            except OSError as exc:
                if exc.errno == errno.ENXIO:
                    return
                raise
            end = min(os.lseek(source, start, os.SEEK_HOLE), size)
            self._fill_range(source, target, start, end)
            start = max(end, start + 1)

    def _fill_range(self, source: int, target: int, start: int, end: int) -> None:
        os.lseek(target, start, os.SEEK_SET)
        while start < end:
            if self._stopped():
                raise Stopped
            chunk = os.pread(source, min(_CHUNK, end - start), start)
            if not chunk:
                return  # it is shorter by now
            rest = memoryview(chunk)
            while rest:
                rest = rest[os.write(target, rest) :]
            start += len(chunk)
