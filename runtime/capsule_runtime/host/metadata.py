"""Change modes, owners, times and attributes of files that we hold, as the user of the harness.

No path that the harness could swap is followed twice: a file is opened beneath a folder that we
hold, so that nothing can be done with it but this, and is then reached by our own descriptor.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from typing import assert_never

from capsule_runtime.core.mediation import Located
from capsule_runtime.core.notices import Refused
from capsule_runtime.core.wanted import Attribute, Deed, Mode, Owner, Times
from capsule_runtime.host.caller import opened

_OPENAT2 = 437
_HOW = struct.Struct("=QQQ")
_NO_MAGICLINKS, _NO_SYMLINKS, _BENEATH = 0x02, 0x04, 0x08
_TRIES = 8
_HERE = -100
_SETGROUPS = {"x86_64": 116, "aarch64": 159}

_libc = ctypes.CDLL(None, use_errno=True)
_libc.setfsuid.restype = _libc.setfsgid.restype = ctypes.c_uint
_NOBODY = -1
"""Whom to become in order to only ask who we are."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a harness is, where it is another user than we are."""

    uid: int
    gid: int


class Roots:
    """The folders and files that a harness may write, held for as long as it runs."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._held: dict[str, int] = {}
        try:
            for path in paths:
                if path not in self._held:
                    self._held[path] = _open(_HERE, os.fsencode(path), resolve=_NO_SYMLINKS)
        except OSError:
            self.close()
            raise

    @property
    def paths(self) -> Iterable[str]:
        """Return where they are, as they were named."""
        return self._held

    def close(self) -> None:
        """Let go of them."""
        for root in self._held.values():
            os.close(root)
        self._held.clear()

    def hold(self, located: Located, *, follow: bool, as_written: bool = False) -> int:
        """Return a descriptor of the file that is *located*, wherever its links lead beneath.

        With *as_written* there must be no links: it is a path that the kernel gave us.

        Raises:
            Refused: it is not there, or lies outside.
        """
        root = self._held[located.root]
        if not located.beneath:
            return os.dup(root)
        resolve = _BENEATH | _NO_MAGICLINKS | (_NO_SYMLINKS if as_written else 0)
        number = 0
        for _ in range(_TRIES):
            try:
                return _open(root, located.beneath, resolve=resolve, follow=follow)
            except OSError as exc:
                number = exc.errno or errno.EIO
            if number != errno.EAGAIN:  # Something was moved while the kernel looked for it.
                break
        outside = {errno.EXDEV, errno.EAGAIN, errno.ELOOP}
        raise Refused(errno.EPERM if number in outside else number)


@contextmanager
def acting_as(identity: Identity | None) -> Generator[None]:
    """Reach files as *identity* would, in this thread alone and for this block; None: as we are.

    The kernel then judges, as it would judge the harness: what root may do does not count. Nothing
    may be awaited in the block.

    Raises:
        OSError: we may not become another user.
    """
    if identity is None:
        yield
        return
    ours = Identity(_libc.setfsuid(_NOBODY), _libc.setfsgid(_NOBODY))
    groups = os.getgroups()
    _set_groups([])
    _libc.setfsgid(identity.gid)
    _libc.setfsuid(identity.uid)
    try:
        if _libc.setfsuid(_NOBODY) != identity.uid:
            raise OSError(errno.EPERM, "setfsuid")
        yield
    finally:
        _libc.setfsuid(ours.uid)
        _libc.setfsgid(ours.gid)
        _set_groups(groups)


def change(held: int, deed: Deed) -> None:
    """Do *deed* to the file that is *held*.

    Raises:
        OSError: the kernel refuses.
    """
    path = f"/proc/self/fd/{held}"
    match deed:
        case Mode(mode):
            os.chmod(path, mode)
        case Owner(uid, gid):
            os.chown(path, uid, gid)
        case Times(times):
            _set_times(path, times)
        case Attribute(name, value, flags):
            if value is None:
                os.removexattr(path, name)
            else:
                os.setxattr(path, name, value, flags)
        case _:
            assert_never(deed)


def _open(folder: int, path: bytes, *, resolve: int, follow: bool = False) -> int:
    flags = os.O_PATH | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    how = _HOW.pack(flags, 0, resolve)
    held: int = _libc.syscall(_OPENAT2, folder, path, how, ctypes.c_size_t(_HOW.size))
    if held < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), os.fsdecode(path))
    return held


def is_same(held: int, other: int) -> bool:
    """Whether two descriptors lead to one file."""
    return os.path.samestat(os.fstat(held), os.fstat(other))


def is_regular(held: int) -> bool:
    """Whether it is a file, and no folder, device, pipe or socket."""
    return stat.S_ISREG(os.fstat(held).st_mode)


def file_of(held: int) -> tuple[int, int]:
    """Return the mount and the inode of a descriptor of ours, as `Opened.file` has them."""
    return opened(f"/proc/self/fdinfo/{held}").file


def _set_times(path: str, times: tuple[tuple[int, int], tuple[int, int]] | None) -> None:
    packed = None if times is None else struct.pack("=4q", *times[0], *times[1])
    if _libc.utimensat(_HERE, path.encode(), packed, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _set_groups(groups: list[int]) -> None:
    """Set the groups of this thread alone; what `os` has would set those of all threads."""
    packed = struct.pack(f"={len(groups)}I", *groups)
    if _libc.syscall(_SETGROUPS[os.uname().machine], len(groups), packed) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
