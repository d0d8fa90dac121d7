"""Look into a folder without ever following a link or opening anything but plain files.

Every step goes from an open directory to a name in it, never by a whole path: a directory that
turns into a link while we look is an error, not a way out of the folder.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Literal, NamedTuple

Kind = Literal["file", "link", "folder", "special"]

MAX_DEPTH = 256
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# O_NONBLOCK: a file that turned into a fifo since we looked must not hold us.
_PLAIN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class Entry(NamedTuple):
    """Hold what the file system says about one name; *path* is relative to the folder."""

    path: str
    kind: Kind
    size: int
    mtime: float
    executable: bool


class Folder:
    """Read one folder; *checkpoint* is called before every step and may raise to stop it."""

    def __init__(self, path: str, inner: str = "", checkpoint: Callable[[], None] = lambda: None):
        self.checkpoint = checkpoint
        self._names: list[str] = []
        self._open = [os.open(path, _DIRECTORY)]
        try:
            root = self._directory(inner)
        except OSError:
            self.close()
            raise
        self._open.remove(root)
        self.close()
        self._open, self._names = [root], []

    def close(self) -> None:
        """Close every directory that is open."""
        while self._open:
            os.close(self._open.pop())

    def look(self, path: str) -> Entry:
        """Describe *path* itself, a link as a link.

        Raises: OSError.
        """
        self.checkpoint()
        parent, name = self._place(path)
        return _entry(path, os.stat(name, dir_fd=parent, follow_symlinks=False))

    def scan(self, path: str) -> Iterator[Entry]:
        """Describe everything in the directory *path* ("" is the folder itself), unsorted.

        Raises: OSError when the directory cannot be read.
        """
        prefix = f"{path}/" if path else ""
        with os.scandir(self._directory(path)) as found:
            for item in found:
                self.checkpoint()
                try:
                    status = item.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                yield _entry(prefix + item.name, status)

    def read(self, path: str, limit: int) -> bytes:
        """Read at most *limit* bytes of the plain file *path*.

        Raises: OSError, also when it is no plain file (any more).
        """
        self.checkpoint()
        parent, name = self._place(path)
        file = os.open(name, _PLAIN_FILE, dir_fd=parent)
        try:
            status = os.fstat(file)
            if not stat.S_ISREG(status.st_mode):
                raise OSError(errno.EINVAL, "not a plain file", path)
            return _read(file, min(limit, status.st_size))
        finally:
            os.close(file)

    def target(self, path: str) -> str:
        """Read where the link *path* points.

        Raises: OSError.
        """
        parent, name = self._place(path)
        return os.readlink(name, dir_fd=parent)

    def _place(self, path: str) -> tuple[int, str]:
        directory, _, name = path.rpartition("/")
        if name in ("", ".", ".."):
            raise OSError(errno.EINVAL, "not a name", path)
        return self._directory(directory), name

    def _directory(self, path: str) -> int:
        """Open *path*, keeping open what it shares with the path before: neighbours are cheap."""
        names = path.split("/") if path else []
        if names == self._names:
            return self._open[-1]
        if len(names) > MAX_DEPTH:
            raise OSError(errno.ENAMETOOLONG, "nested too deep", path)
        shared = 0
        while self._names[shared : shared + 1] == names[shared : shared + 1] != []:
            shared += 1
        while len(self._open) > shared + 1:
            os.close(self._open.pop())
        del self._names[shared:]
        for name in names[shared:]:
            if name in ("", ".", ".."):
                raise OSError(errno.EINVAL, "not a name", path)
            self._open.append(os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=self._open[-1]))
            self._names.append(name)
        return self._open[-1]


@contextmanager
def opened(
    path: str, inner: str = "", checkpoint: Callable[[], None] = lambda: None
) -> Generator[Folder]:
    """Open the folder *inner* (no link on the way) of *path*.

    Raises: OSError.
    """
    folder = Folder(path, inner, checkpoint)
    try:
        yield folder
    finally:
        folder.close()


def _entry(path: str, status: os.stat_result) -> Entry:
    mode = status.st_mode
    kind: Kind = "special"
    if stat.S_ISREG(mode):
        kind = "file"
    elif stat.S_ISLNK(mode):
        kind = "link"
    elif stat.S_ISDIR(mode):
        kind = "folder"
    return Entry(path, kind, status.st_size, status.st_mtime, bool(mode & 0o111))


def _read(file: int, size: int) -> bytes:
    read = b""
    while len(read) < size and (chunk := os.read(file, size - len(read))):
        read += chunk
    return read
