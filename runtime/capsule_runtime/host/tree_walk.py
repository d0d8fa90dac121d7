"""The one way in which a tree that a harness may have written is looked through.

From folder to folder by descriptors, each opened beneath the top: no link leads astray, no pipe is
waited for, no other file system is entered. It takes three descriptors, however deep the tree is,
and ends however much there is.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress

from msgspec import Struct, field

from capsule_runtime.host.beneath import FOLDER, MOST_PATH_BYTES, open_beneath

_PATH = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_OWNER_MAY_ENTER, _OWNER_MAY_READ = 0o700, 0o600


class Found(Struct, frozen=True):
    """Something in the tree. *folder* is open until the next one is asked for."""

    path: str
    """Relative to the top; bytes that are no UTF-8 stand for themselves (surrogateescape)."""
    name: str
    folder: int
    entry: os.DirEntry[str]

    @property
    def status(self) -> os.stat_result:
        """Return what was seen of it, a link not followed.

        Raises:
            OSError: it is gone, and the walk is one that does not look at once.
        """
        return self.entry.stat(follow_symlinks=False)

    @property
    def is_folder(self) -> bool:
        return self.entry.is_dir(follow_symlinks=False)

    @property
    def is_file(self) -> bool:
        return self.entry.is_file(follow_symlinks=False)

    @property
    def is_link(self) -> bool:
        return self.entry.is_symlink()

    @property
    def is_sole(self) -> bool:
        """Whether it is a file with no other name, in this tree or outside."""
        return self.is_file and self.status.st_nlink == 1


class Walk(Struct):
    """Look through the tree beneath *top* once, each folder before what is in it.

    *enters* tells which folders are entered; *most* bounds how much is looked at. With
    *opens_closed* a folder that its owner may not enter is opened for them: only where no harness
    lives any more.
    """

    top: int
    most: int
    enters: Callable[[Found], bool] | None = None
    opens_closed: bool = False
    breadth_first: bool = False
    names_only: bool = False
    """Whether it is enough to know names and kinds, for which a folder tells all at once."""
    stopped: Callable[[], bool] = lambda: False
    unseen: dict[str, str] = field(default_factory=dict[str, str])
    """What was not looked at, with the reason: a folder stands for all beneath it."""
    is_cut: bool = False
    """Whether there was more than *most*."""
    _count: int = 0

    def __iter__(self) -> Iterator[Found]:
        waiting = [""]
        while waiting:
            path = waiting.pop(0 if self.breadth_first else -1)
            fd = self._open(path)
            if fd is None:
                continue
            try:
                for found in self._inside(fd, f"{path}/" if path else ""):
                    yield found
                    if found.is_folder and (self.enters is None or self.enters(found)):
                        waiting.append(found.path)
            finally:
                os.close(fd)
            if self.is_cut:
                return

    def _open(self, path: str) -> int | None:
        try:
            return open_beneath(self.top, path)
        except OSError as exc:
            if exc.errno == errno.EACCES and self.opens_closed and path:
                with suppress(OSError):
                    open_up(self.top, path)
                    return open_beneath(self.top, path)
            # What is gone by now, or something else, is no part of the tree.
            if exc.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP) or not path:
                self.unseen[path] = why_not(exc)
            return None

    def _inside(self, fd: int, place: str) -> Iterator[Found]:
        with os.scandir(fd) as entries:
            for entry in entries:
                if self._count == self.most or self.stopped():
                    self.is_cut = True
                    return
                self._count += 1
                path = place + entry.name
                if len(os.fsencode(path)) > MOST_PATH_BYTES:
                    self.unseen[path] = "its path is too long"
                    continue
                found = Found(path, entry.name, fd, entry)
                if self.names_only or self._is_seen(found):
                    yield found

    def _is_seen(self, found: Found) -> bool:
        """Look at *found* now: what is gone already is no part of the tree."""
        try:
            _ = found.status  # its entry keeps it
        except FileNotFoundError:
            return False
        return True


def open_up(top: int, path: str) -> None:
    """Let the owner of *path*, a file or folder beneath *top*, read it.

    Raises:
        OSError: it is not ours, or gone.
    """
    fd = open_beneath(top, path, _PATH)
    try:
        # A descriptor of this kind cannot be changed itself; its name in /proc is no way out.
        mode = os.fstat(fd).st_mode
        may = _OWNER_MAY_ENTER if stat.S_ISDIR(mode) else _OWNER_MAY_READ
        os.chmod(f"/proc/self/fd/{fd}", stat.S_IMODE(mode) | may)
    finally:
        os.close(fd)


def open_folder(path: str | os.PathLike[str]) -> int:
    """Open the top of a tree, a folder and no link.

    Raises:
        OSError: it is neither, or not to be opened.
    """
    return os.open(path, FOLDER)


def why_not(exc: OSError) -> str:
    """Say in a few words why something was not looked at."""
    match exc.errno:
        case errno.EXDEV:
            return "another file system is mounted there"
        case errno.EACCES | errno.EPERM:
            return "it may not be read"
        case _:
            return exc.strerror or str(exc)
