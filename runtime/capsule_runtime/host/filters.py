"""Put filters over the system calls of this process, and of all that it starts: for good.

Loaded by path into the warden's bare interpreter: the standard library only. The programs come from
`core.seccomp`.
"""

from __future__ import annotations

import ctypes
import os
import struct

_SECCOMP = {"x86_64": 317, "aarch64": 277}
_SET_MODE_FILTER = 1
_NEW_LISTENER, _WAIT_KILLABLE_RECV = 1 << 3, 1 << 5
_INSTRUCTION_BYTES = 8

_libc = ctypes.CDLL(None, use_errno=True)


def install(program: bytes) -> None:
    """Have the kernel run *program* over each call of this process; no-new-privs is set already.

    Raises:
        OSError: the kernel refuses, or the machine is not known.
    """
    _install(program, 0)


def install_notifying(program: bytes) -> int:
    """Do what `install` does; return the descriptor at which the calls of *program* are told.

    Until somebody serves it, each of those calls waits; once it is closed everywhere, they answer
    ENOSYS. A call that was heard of goes on waiting whatever signal comes, unless it is a deadly
    one: or else it would be made again, and twice. Before, a signal interrupts it, and it starts
    again where the handler wants that. The descriptor is closed by the next exec.

    Raises:
        OSError: the kernel refuses, or the machine is not known; EBUSY, where another program is
            told of our calls.
    """
    return _install(program, _NEW_LISTENER | _WAIT_KILLABLE_RECV)


def count_installed() -> int:
    """Return how many filters this process is behind."""
    status = os.open("/proc/self/status", os.O_RDONLY | os.O_CLOEXEC)
    try:
        words = os.read(status, 65536).split()
    finally:
        os.close(status)
    return int(words[words.index(b"Seccomp_filters:") + 1])


def _install(program: bytes, flags: int) -> int:
    machine = os.uname().machine
    if machine not in _SECCOMP:
        raise OSError(0, f"no filter knows the machine {machine!r}")
    held = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HP", len(program) // _INSTRUCTION_BYTES, ctypes.addressof(held))
    result: int = _libc.syscall(_SECCOMP[machine], _SET_MODE_FILTER, ctypes.c_ulong(flags), header)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"seccomp: {os.strerror(number)}")
    return result
