"""Who made a call that the broker does: its memory, its folder and its descriptors.

It is stopped in the call, but other threads of it are not: what is read here is a copy, and counts
as soon as the kernel says that the caller still waits.
"""

from __future__ import annotations

import errno
import os
import re
from contextlib import suppress
from dataclasses import dataclass
from functools import cache

from capsule_runtime.core.notices import Refused

_PAGE = 4096
_SYS_PTRACE = 1 << 19
_FIELD = re.compile(rb"(flags|mnt_id|ino):\s*([0-9]+)")
_TERMINAL = re.compile(rb"^tty-index:\s*([0-9]+)$", re.MULTILINE)
_MASTERS = (b"/dev/ptmx", b"/dev/pts/ptmx")
_KINDS = {b"flags": 8, b"mnt_id": 10, b"ino": 10}


@dataclass(frozen=True, slots=True)
class Opened:
    """A descriptor: how it was opened, and the file that it leads to."""

    flags: int
    file: tuple[int, int]
    """Its mount and inode."""

    @property
    def is_writable(self) -> bool:
        """Whether its file can be written through it, so that the right to write was checked."""
        # There is a fourth mode, which neither reads nor writes: Landlock asks no right for it.
        mode = self.flags & os.O_ACCMODE
        return not self.flags & os.O_PATH and mode in (os.O_WRONLY, os.O_RDWR)


class Caller:
    """The thread *thread*, for as long as it waits in its call."""

    def __init__(self, thread: int) -> None:
        self._proc = f"/proc/{thread}"
        try:
            self._memory = os.open(f"{self._proc}/mem", os.O_RDONLY | os.O_CLOEXEC)
        except OSError as exc:
            raise Refused(errno.EACCES) from exc

    def close(self) -> None:
        """Let go of its memory."""
        os.close(self._memory)

    def read(self, address: int, size: int) -> bytes:
        """Return *size* bytes of its memory.

        Raises:
            Refused: it has less.
        """
        found = self._read(address, size)
        if len(found) < size:
            raise Refused(errno.EFAULT)
        return found

    def read_text(self, address: int, at_most: int) -> bytes | None:
        """Return the bytes up to the first NUL; None: there is none among *at_most*.

        Raises:
            Refused: its memory ends before.
        """
        text = b""
        while len(text) < at_most:
            # A text may end where the memory ends, so pages are read one by one.
            size = min(_PAGE - (address + len(text)) % _PAGE, at_most - len(text))
            before, nul, _ = self.read(address + len(text), size).partition(b"\0")
            text += before
            if nul:
                return text
        return None

    def _read(self, address: int, size: int) -> bytes:
        with suppress(OSError, OverflowError):
            return os.pread(self._memory, size, address)
        return b""

    def place_of(self, descriptor: int | None) -> bytes:
        """Return where its *descriptor* leads to; None: the folder that it is in.

        Raises:
            Refused: it has no such descriptor.
        """
        try:
            return os.readlink(os.fsencode(self._path_of(descriptor)))
        except OSError as exc:
            raise Refused(errno.EBADF) from exc

    def opened(self, descriptor: int) -> Opened:
        """Return how its *descriptor* is open.

        Raises:
            Refused: it has no such descriptor.
        """
        try:
            return opened(f"{self._proc}/fdinfo/{descriptor}")
        except OSError as exc:
            raise Refused(errno.EBADF) from exc

    def terminal_of(self, descriptor: int) -> int:
        """Return the number of the terminal whose master its *descriptor* is.

        Raises:
            Refused: it has no such descriptor, or that is none.
        """
        if self.place_of(descriptor) not in _MASTERS:
            raise Refused(errno.ENOTTY)
        try:
            number = _TERMINAL.search(_told(f"{self._proc}/fdinfo/{descriptor}"))
        except OSError as exc:
            raise Refused(errno.EBADF) from exc
        if number is None:
            raise Refused(errno.ENOTTY)
        return int(number[1])

    def hold(self, descriptor: int | None) -> int:
        """Return a descriptor of our own, by which nothing can be read or written, of its file.

        Raises:
            Refused: it has no such descriptor.
        """
        try:
            return os.open(self._path_of(descriptor), os.O_PATH | os.O_CLOEXEC)
        except OSError as exc:
            raise Refused(errno.EBADF) from exc

    def _path_of(self, descriptor: int | None) -> str:
        return f"{self._proc}/cwd" if descriptor is None else f"{self._proc}/fd/{descriptor}"


def opened(fdinfo: str) -> Opened:
    """Return what the kernel says in the file *fdinfo*, all of it at one time.

    Raises:
        OSError: there is no such descriptor.
    """
    told = _FIELD.findall(_told(fdinfo))
    fields = {name: int(value, _KINDS[name]) for name, value in told}
    return Opened(fields[b"flags"], (fields[b"mnt_id"], fields[b"ino"]))


def _told(fdinfo: str) -> bytes:
    file = os.open(fdinfo, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(file, _PAGE)
    finally:
        os.close(file)


@cache
def may_read_everything() -> bool:
    """Whether no process, whoever's it is, can hide its memory from us."""
    with open("/proc/self/status", encoding="ascii") as status:
        words = status.read().split()
    return bool(int(words[words.index("CapEff:") + 1], 16) & _SYS_PTRACE)
