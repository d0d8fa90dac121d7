"""The kernel calls that the warden needs and Python does not offer.

Loaded by path into the warden's bare interpreter: the standard library only.
"""

from __future__ import annotations

import ctypes
import os
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    import socket
else:
    # The plain modules bring `enum` and `selectors`: 10 ms on top of a start of 10.
    import _signal as signal
    import _socket as socket

SIGNALFD_INFO = struct.Struct("I124x")  # All we want of it is the signal's number.
PR_SET_NAME, PR_SET_CHILD_SUBREAPER = 15, 36
SYS_CLONE3 = 435  # The same on every architecture.
CLONE_PARENT, CLONE_INTO_CGROUP = 0x8000, 0x200000000
CLONE_ARGS, CLONE_ARGS_WITH_CGROUP = struct.Struct("8Q"), struct.Struct("11Q")

_libc = ctypes.CDLL(None, use_errno=True)
_prctl = _libc.prctl
# It keeps the interpreter's lock, which the child then holds too.
_syscall = ctypes.PyDLL(None, use_errno=True).syscall


def fork_sibling() -> int:
    """Fork a child of our own parent, as `fork_with` does."""
    return fork_with(CLONE_PARENT, 0)


def fork_with(flags: int, end_signal: int = signal.SIGCHLD) -> int:
    """Fork with *flags* of `clone`; return the child's pid, and 0 in the child.

    It is for a process of one thread: nothing that libraries do around a fork is done. Our parent
    hears of a child's end by *end_signal*; a sibling has ours.

    Raises:
        OSError: the system refuses.
    """
    return _clone(CLONE_ARGS.pack(flags, 0, 0, 0, end_signal, 0, 0, 0))


def fork_sibling_into(cgroup: int) -> int:
    """Do what `fork_sibling` does, with the child in the open folder *cgroup* from its start.

    Only the unified hierarchy can, since Linux 5.7.
    """
    flags = CLONE_PARENT | CLONE_INTO_CGROUP
    return _clone(CLONE_ARGS_WITH_CGROUP.pack(flags, *(0,) * 9, cgroup))


def _clone(arguments: bytes) -> int:
    pid: int = _syscall(SYS_CLONE3, arguments, len(arguments))
    if pid < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"clone3: {os.strerror(number)}")
    return pid


def be_called(name: bytes) -> None:
    """Be called *name* by `ps`."""
    _prctl(PR_SET_NAME, name)


def become_reaper(name: bytes) -> None:
    """Adopt every orphan below from now on, and be called *name* by `ps`."""
    be_called(name)
    if _prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "PR_SET_CHILD_SUBREAPER")


def stop_reaping(name: bytes) -> None:
    """Adopt nobody any more, and be called *name* by `ps`."""
    be_called(name)
    _prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def open_signals() -> int:
    """Return a signalfd of the two that matter, and block all: nothing else ends this process."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    # A harness inherits dispositions, also those that the supervisor's own caller left ignored.
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)
    wanted = 1 << (signal.SIGCHLD - 1) | 1 << (signal.SIGUSR1 - 1)
    signals: int = _libc.signalfd(-1, struct.pack("L120x", wanted), os.O_NONBLOCK | os.O_CLOEXEC)
    if signals < 0:
        raise OSError(ctypes.get_errno(), "signalfd")
    return signals


def read_signals(signals: int) -> set[int]:
    """Take the numbers of the signals that wait at the signalfd *signals*."""
    waiting = os.read(signals, 64 * SIGNALFD_INFO.size)
    return {number for (number,) in SIGNALFD_INFO.iter_unpack(waiting)}


def accept(listener: int) -> int | None:
    """Return the next visitor at *listener*, if there is one and it is our own user or root."""
    flags = socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
    visitor: int = _libc.accept4(listener, None, None, flags)
    if visitor < 0:
        return None
    peer = socket.socket(fileno=visitor)
    _, uid, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    if uid not in (0, os.geteuid()):
        peer.close()
        return None
    return peer.detach()
