"""Remove a tree that a harness has written, whatever is in it: however deep, closed or wide.

Nothing is followed. The way down and up again is by descriptors and `..`, and each step up is
checked to lead where it came from, so that neither depth nor long paths cost anything.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from contextlib import suppress

from capsule_runtime.host.beneath import FOLDER


def remove_tree(parent: str | os.PathLike[str], name: str, stopped: Callable[[], bool]) -> bool:
    """Remove *name* in *parent* with all that is in it; tell whether it is gone.

    It is left for the next time what *stopped* interrupts, and what the disk refuses.
    """
    with suppress(OSError):
        top = os.open(parent, FOLDER)
        try:
            return remove_beneath(top, name, stopped)
        finally:
            os.close(top)
    return not os.path.lexists(os.path.join(parent, name))


def remove_beneath(top: int, name: str, stopped: Callable[[], bool]) -> bool:
    """Remove *name* in the open folder *top*, as `remove_tree` does.

    Raises:
        OSError: the disk refuses.
    """
    return _unlink(top, name) or _Removal(top, name, stopped).finish()


class _Removal:
    """Empty one folder, from the leaves up."""

    def __init__(self, parent: int, name: str, stopped: Callable[[], bool]) -> None:
        self._stopped = stopped
        self._fd = os.open(".", FOLDER, dir_fd=parent)
        self._way: list[tuple[str, int]] = []
        """The names that led here, each with the inode of the folder it lies in."""
        self._next = name

    def finish(self) -> bool:
        try:
            self._enter(self._next)
            while self._way and not self._stopped():
                inner = self._clear()
                if inner is None:
                    self._leave()
                else:
                    self._enter(inner)
            return not self._way
        finally:
            os.close(self._fd)

    def _clear(self) -> str | None:
        """Remove what is no folder here; return a folder that is not empty, if there is one."""
        is_empty = False
        while not is_empty and not self._stopped():
            is_empty = True
            with os.scandir(self._fd) as entries:
                for entry in entries:
                    is_empty = False
                    if self._stopped():
                        break
                    if not _unlink(self._fd, entry.name):
                        return entry.name
        return None

    def _enter(self, name: str) -> None:
        inode = os.fstat(self._fd).st_ino
        try:
            fd = os.open(name, FOLDER, dir_fd=self._fd)
        except PermissionError:
            _open_up(self._fd, name)
            fd = os.open(name, FOLDER, dir_fd=self._fd)
        if stat.S_IMODE(os.fstat(fd).st_mode) & 0o700 != 0o700:
            os.fchmod(fd, 0o700)
        self._way.append((name, inode))
        os.close(self._fd)
        self._fd = fd

    def _leave(self) -> None:
        if self._stopped():
            return
        name, inode = self._way.pop()
        above = os.open("..", FOLDER, dir_fd=self._fd)
        os.close(self._fd)
        self._fd = above
        if os.fstat(above).st_ino != inode:
            raise OSError(errno.ESTALE, "the folder was moved while it was removed", name)
        with suppress(FileNotFoundError):
            os.rmdir(name, dir_fd=above)


def _unlink(folder: int, name: str) -> bool:
    """Remove *name* if it is no folder, or an empty one; tell whether it is gone."""
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        return True
    except (IsADirectoryError, PermissionError):
        try:
            os.rmdir(name, dir_fd=folder)
        except OSError as exc:
            if exc.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.EACCES):
                raise
            return False
    return True


def _open_up(folder: int, name: str) -> None:
    fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
    try:
        os.chmod(f"/proc/self/fd/{fd}", 0o700)
    finally:
        os.close(fd)
