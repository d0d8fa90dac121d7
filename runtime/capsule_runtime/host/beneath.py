"""Open what lies beneath a folder, wherever whoever writes there would like to lead us.

No link is followed, no mount is crossed, nothing outside is reached: the kernel sees to it
(openat2), or, where it has no such call, one step at a time does.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from functools import cache

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
MOST_PATH_BYTES = 4095
"""Nobody can open a longer path."""

_OPENAT2 = 437  # The same on every architecture.
_HOW = struct.Struct("QQQ")
_NO_XDEV, _NO_MAGICLINKS, _NO_SYMLINKS, _BENEATH = 0x01, 0x02, 0x04, 0x08
_RESOLVE = _NO_XDEV | _NO_MAGICLINKS | _NO_SYMLINKS | _BENEATH
_AGAIN = 64
"""How often the kernel may ask to be asked again, because somebody renames things meanwhile."""

_syscall = ctypes.CDLL(None, use_errno=True).syscall


def open_beneath(top: int, path: str, flags: int = FOLDER) -> int:
    """Open *path*, relative to the folder *top*; nothing is created. An empty path is *top*.

    Raises:
        OSError: ELOOP, a link is in the way; EXDEV, it leads out or to another file system; or the
            usual reasons.
    """
    if not path:
        return os.open(".", flags, dir_fd=top)
    return _open_whole(top, path, flags) if _has_openat2() else _open_by_steps(top, path, flags)


def parted(path: str) -> tuple[str, str]:
    """Return the folder that *path* lies in, empty for the top, and its last name."""
    folder, _, name = path.rpartition("/")
    return folder, name


def _open_whole(top: int, path: str, flags: int) -> int:
    how = _HOW.pack(flags, 0, _RESOLVE)
    encoded = os.fsencode(path)
    if b"\0" in encoded:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), path)
    for _ in range(_AGAIN):
        fd: int = _syscall(_OPENAT2, top, encoded, how, _HOW.size)
        if fd >= 0:
            return fd
        if (number := ctypes.get_errno()) not in (errno.EAGAIN, errno.EINTR):
            raise OSError(number, os.strerror(number), path)
    raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN), path)


def _open_by_steps(top: int, path: str, flags: int) -> int:
    folder = os.open(".", FOLDER, dir_fd=top)
    device = os.fstat(folder).st_dev
    try:
        *parents, name = path.split("/")
        for part in parents:
            inner = _step(folder, part, FOLDER, device)
            os.close(folder)
            folder = inner
        return _step(folder, name, flags, device)
    finally:
        os.close(folder)


def _step(folder: int, name: str, flags: int, device: int) -> int:
    if name in ("", ".", ".."):
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), name)
    fd = os.open(name, flags | os.O_NOFOLLOW, dir_fd=folder)
    if os.fstat(fd).st_dev != device:
        os.close(fd)
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), name)
    return fd


@cache
def _has_openat2() -> bool:
    """Say whether the kernel has openat2, and whoever filters our calls lets it pass."""
    fd: int = _syscall(_OPENAT2, -100, b"/", _HOW.pack(FOLDER, 0, 0), _HOW.size)
    if fd < 0:
        return False
    os.close(fd)
    return True
