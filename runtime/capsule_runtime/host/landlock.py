"""Landlock: what a process, and all that it starts, may open, and whom it may signal.

Loaded by path into the warden's bare interpreter: the standard library only. One ruleset for files
and scopes: a second one on top would take the right to rename from one folder to another.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
_ASK_VERSION, _ASK_ERRATA = 1, 2
_PATH_BENEATH = 1
OPENAT2 = 437
_AT_FDCWD, _NO_SYMLINKS = -100, 0x04

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR, REMOVE_DIR, REMOVE_FILE = (1 << bit for bit in range(6))
MAKE_CHAR, MAKE_DIR, MAKE_REG, MAKE_SOCK, MAKE_FIFO, MAKE_BLOCK = (1 << bit for bit in range(6, 12))
MAKE_SYM, REFER, TRUNCATE, IOCTL_DEV = (1 << bit for bit in range(12, 16))

_LOOK = READ_FILE | READ_DIR
_CHANGE = WRITE_FILE | TRUNCATE | REMOVE_DIR | REMOVE_FILE | REFER
_CREATE = MAKE_DIR | MAKE_REG | MAKE_SOCK | MAKE_FIFO | MAKE_SYM
RIGHTS = {
    "list": READ_DIR,
    "look": _LOOK,
    "read": _LOOK | EXECUTE,
    "write": _LOOK | EXECUTE | _CHANGE | _CREATE,
    "device": _LOOK | WRITE_FILE | TRUNCATE | IOCTL_DEV,
}
"""What each kind of access may do. Nothing may make device nodes."""

_OF_A_FILE = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
_SCOPES = 3  # abstract unix sockets and signals
_SCOPES_SINCE = 6

_libc = ctypes.CDLL(None, use_errno=True)
_syscall = _libc.syscall


def version() -> int:
    """Return the kernel's Landlock ABI; minus an errno where there is none."""
    return _ask(_ASK_VERSION)


def errata() -> int:
    """Return the bits of what was mended in this kernel's Landlock; 0 where it cannot tell."""
    return max(0, _ask(_ASK_ERRATA))


def _ask(flag: int) -> int:
    answer: int = _syscall(CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(flag))
    return answer if answer >= 0 else -ctypes.get_errno()


def _handled(abi: int) -> int:
    return (1 << (13 if abi < 2 else 14 if abi < 3 else 15 if abi < 5 else 16)) - 1


def restrict(rules: Iterable[tuple[bytes, str]]) -> tuple[int, int]:
    """Deny this process all files but those beneath *rules*; return the ABI and how many rules.

    From ABI 6 on it can signal, and reach by abstract sockets, only what it starts itself. The
    caller has set no-new-privs.

    Raises:
        OSError: there is no Landlock, or a path cannot be opened.
    """
    abi = version()
    if abi < 1:
        raise OSError(-abi, os.strerror(-abi))
    handled = _handled(abi)
    attributes = struct.pack("QQQ", handled, 0, _SCOPES if abi >= _SCOPES_SINCE else 0)
    size = 24 if abi >= _SCOPES_SINCE else 16 if abi >= 4 else 8
    ruleset = _checked(
        _syscall(CREATE_RULESET, attributes, ctypes.c_size_t(size), ctypes.c_uint32(0)), "ruleset"
    )
    count = 0
    for path, kind in rules:
        _add(ruleset, _open(path, kind), RIGHTS[kind] & handled)
        count += 1
    _checked(_syscall(RESTRICT_SELF, ruleset, ctypes.c_uint32(0)), "restrict")
    os.close(ruleset)
    return abi, count


def _open(path: bytes, kind: str) -> int:
    """Return a descriptor of *path*. Nobody must have put a link where something may be written."""
    flags = os.O_PATH | os.O_CLOEXEC
    if kind != "write":
        return os.open(path, flags)
    how = struct.pack("QQQ", flags, 0, _NO_SYMLINKS)
    place: int = _syscall(OPENAT2, _AT_FDCWD, path, how, ctypes.c_size_t(len(how)))
    if place < 0 and ctypes.get_errno() == errno.ENOSYS:
        return os.open(path, flags)  # Filtered, so in a root of our own, where nobody else writes.
    return _checked(place, f"open {os.fsdecode(path)}")


def _add(ruleset: int, place: int, rights: int) -> None:
    try:
        if not stat.S_ISDIR(os.fstat(place).st_mode):
            rights &= _OF_A_FILE
        rule = struct.pack("=Qi", rights, place)
        _checked(_syscall(ADD_RULE, ruleset, _PATH_BENEATH, rule, ctypes.c_uint32(0)), "rule")
    finally:
        os.close(place)


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"landlock {what}: {os.strerror(number)}")
    return result
