"""What a harness asked for, in a call that the kernel tells the broker of instead of doing it.

A call's arguments are numbers, some of them places in the memory of the caller. Each is read once
and judged as it was read: what is written there later changes nothing.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Protocol

from capsule_runtime.core.syscalls import NUMBERS, TIOCGPTPEER, MachineName
from capsule_runtime.core.wanted import (
    Attribute,
    Bind,
    Change,
    Connect,
    Deed,
    Listen,
    Mode,
    OpenTerminal,
    Owner,
    Subject,
    Times,
    Wanted,
)

EPERM, ENOENT, E2BIG, EFAULT, EINVAL = 1, 2, 7, 14, 22
ERANGE, ENAMETOOLONG, ENOSYS, EOPNOTSUPP = 34, 36, 38, 95

NOTICE_BYTES = 80
_NOTICE = struct.Struct("<QIIiIQ6Q")
_HERE = -100
_NO_FOLLOW, _EMPTY_PATH = 0x100, 0x1000
_PATH_BYTES, _ADDRESS_BYTES, _NAME_BYTES, _VALUE_BYTES = 4096, 128, 256, 65536
_ACCESS, _NO_CONTROL, _NO_WAIT, _CLOSES = 0o3, 0o400, 0o4000, 0o2000000
_ATTRIBUTE_ARGUMENTS = struct.Struct("<QII")
_NANOSECONDS, _SPECIAL_NANOSECONDS = 10**9, {(1 << 30) - 1, (1 << 30) - 2}  # now, and unchanged


class Refused(Exception):
    """A call ends with the error *number*."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Memory(Protocol):
    """The memory of a caller."""

    def read(self, address: int, size: int) -> bytes:
        """Return *size* bytes. Raises: Refused (EFAULT), where it has less."""
        ...

    def read_text(self, address: int, at_most: int) -> bytes | None:
        """Return the bytes up to the first NUL; None: there is none among *at_most*."""
        ...


@dataclass(frozen=True, slots=True)
class Notice:
    """One call that waits for its answer."""

    id: int
    thread: int
    call: str
    arguments: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Shape:
    """At which arguments a call has what."""

    operands: int
    descriptor: int | None = None
    path: int | None = None
    flags: int | None = None
    follow: bool = True


_NAMES = {
    machine: {number: name for name, number in numbers.items()}
    for machine, numbers in NUMBERS.items()
}
_SHAPES = {
    "chmod": _Shape(1, path=0),
    "fchmod": _Shape(1, descriptor=0),
    "fchmodat": _Shape(2, descriptor=0, path=1),
    "fchmodat2": _Shape(2, descriptor=0, path=1, flags=3),
    "chown": _Shape(1, path=0),
    "lchown": _Shape(1, path=0, follow=False),
    "fchown": _Shape(1, descriptor=0),
    "fchownat": _Shape(2, descriptor=0, path=1, flags=4),
    "utime": _Shape(1, path=0),
    "utimes": _Shape(1, path=0),
    "futimesat": _Shape(2, descriptor=0, path=1),
    "utimensat": _Shape(2, descriptor=0, path=1, flags=3),
    "setxattr": _Shape(1, path=0),
    "lsetxattr": _Shape(1, path=0, follow=False),
    "fsetxattr": _Shape(1, descriptor=0),
    "setxattrat": _Shape(3, descriptor=0, path=1, flags=2),
    "removexattr": _Shape(1, path=0),
    "lremovexattr": _Shape(1, path=0, follow=False),
    "fremovexattr": _Shape(1, descriptor=0),
    "removexattrat": _Shape(3, descriptor=0, path=1, flags=2),
}


def read_notice(raw: bytes, machine: MachineName) -> Notice:
    """Return what the kernel wrote."""
    number_of_notice, thread, _, number, _, _, *arguments = _NOTICE.unpack(raw)
    return Notice(number_of_notice, thread, _NAMES[machine].get(number, ""), tuple(arguments))


def understand(notice: Notice, memory: Memory) -> Wanted:
    """Return what the caller wants, all of it copied from its *memory*.

    Raises:
        Refused: it makes no sense; the number is what the kernel would have said.
    """
    if notice.call in ("connect", "bind"):
        descriptor, address, size = notice.arguments[:3]
        size &= 0xFFFFFFFF
        if size > _ADDRESS_BYTES:
            raise Refused(EINVAL)
        make = Connect if notice.call == "connect" else Bind
        return make(descriptor & 0xFFFFFFFF, memory.read(address, size))
    if notice.call == "listen":
        return Listen(notice.arguments[0] & 0xFFFFFFFF)
    if notice.call == "ioctl":
        return _terminal(notice)
    shape = _SHAPES.get(notice.call)
    if shape is None:
        raise Refused(ENOSYS)
    subject = _subject(notice, shape, memory)
    return Change(subject, _deed(notice.call, notice.arguments[shape.operands :], memory))


def _terminal(notice: Notice) -> OpenTerminal:
    descriptor, request, flags = (argument & 0xFFFFFFFF for argument in notice.arguments[:3])
    if request != TIOCGPTPEER:
        raise Refused(ENOSYS)
    if flags & ~(_ACCESS | _NO_CONTROL | _NO_WAIT | _CLOSES) or flags & _ACCESS == _ACCESS:
        raise Refused(EINVAL)
    return OpenTerminal(descriptor, flags)


def _subject(notice: Notice, shape: _Shape, memory: Memory) -> Subject:
    arguments = notice.arguments
    flags = 0 if shape.flags is None else arguments[shape.flags] & 0xFFFFFFFF
    if flags & ~(_NO_FOLLOW | _EMPTY_PATH):
        raise Refused(EINVAL)
    descriptor = None if shape.descriptor is None else _signed(arguments[shape.descriptor])
    folder = None if descriptor == _HERE else descriptor
    follow = shape.follow and not flags & _NO_FOLLOW
    if shape.path is None:
        return Subject(descriptor, None)
    address = arguments[shape.path]
    if address == 0:
        # Those two change the descriptor itself then; the others, where an empty path would do.
        if not flags & _EMPTY_PATH and notice.call not in {"futimesat", "utimensat"}:
            raise Refused(EFAULT)
        return Subject(folder, None)
    path = memory.read_text(address, _PATH_BYTES)
    if path is None:
        raise Refused(ENAMETOOLONG)
    if path:
        return Subject(folder, path, follow)
    if not flags & _EMPTY_PATH:
        raise Refused(ENOENT)
    return Subject(folder, None)


def _deed(call: str, operands: tuple[int, ...], memory: Memory) -> Deed:
    if "chmod" in call:
        return Mode(operands[0] & 0o7777)
    if "chown" in call:
        return Owner(_identity(operands[0]), _identity(operands[1]))
    if "time" in call:
        return Times(_times(call, operands[0], memory))
    return _attribute(call, operands, memory)


def _attribute(call: str, operands: tuple[int, ...], memory: Memory) -> Attribute:
    name = memory.read_text(operands[0], _NAME_BYTES)
    if not name:
        raise Refused(ERANGE)
    _check_attribute(name)
    if "remove" in call:
        return Attribute(name, None)
    if call == "setxattrat":
        if operands[2] != _ATTRIBUTE_ARGUMENTS.size:
            raise Refused(EINVAL)
        packed = memory.read(operands[1], _ATTRIBUTE_ARGUMENTS.size)
        value, size, flags = _ATTRIBUTE_ARGUMENTS.unpack(packed)
    else:
        value, size, flags = operands[1:4]
    if size > _VALUE_BYTES:
        raise Refused(E2BIG)
    return Attribute(name, memory.read(value, size), flags & 0xFFFFFFFF)


def _check_attribute(name: bytes) -> None:
    """Leave what the kernel itself reads: rights of programs and of other users."""
    if name.startswith(b"system."):
        raise Refused(EOPNOTSUPP)  # So that whoever copies a file sets its mode instead.
    if not name.startswith(b"user."):
        raise Refused(EPERM)


def _times(
    call: str, address: int, memory: Memory
) -> tuple[tuple[int, int], tuple[int, int]] | None:
    if address == 0:
        return None
    if call == "utime":
        first, second = struct.unpack("<qq", memory.read(address, 16))
        return (first, 0), (second, 0)
    a, a_part, b, b_part = struct.unpack("<4q", memory.read(address, 32))
    if call == "utimensat":
        return _checked(a, a_part), _checked(b, b_part)
    if not (0 <= a_part < 10**6 and 0 <= b_part < 10**6):
        raise Refused(EINVAL)
    return (a, a_part * 1000), (b, b_part * 1000)


def _checked(seconds: int, nanoseconds: int) -> tuple[int, int]:
    if not (0 <= nanoseconds < _NANOSECONDS or nanoseconds in _SPECIAL_NANOSECONDS):
        raise Refused(EINVAL)
    return seconds, nanoseconds


def _identity(argument: int) -> int:
    low = argument & 0xFFFFFFFF
    return -1 if low == 0xFFFFFFFF else low


def _signed(argument: int) -> int:
    """Return the 32 bits that the kernel looks at, as an `int` of C."""
    low = argument & 0xFFFFFFFF
    return low - (1 << 32) if low >> 31 else low
