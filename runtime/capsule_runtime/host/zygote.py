"""The zygote: it forks the buriers, and does nothing else.

Loaded by path into the warden's bare interpreter: the standard library only.

A fork shares every page with the process it came from until one of the two writes to it, and an
interpreter writes wherever it looks, for it counts references. The warden looks around with each
run that it starts, so a burier of its own making would keep a copy of all that the warden wrote
over afterwards. The zygote waits, forks and waits: what a burier does not touch itself it shares
with all others, and an idle run keeps 200 KiB less.

A burier is the warden's child (`CLONE_PARENT`), which reaps it. The zygote ends with the warden's
end of its socket. Like everything of the warden's it may be killed or stopped at any time by a
harness of the same user: then another one is forked.
"""

from __future__ import annotations

import array
import gc
import marshal
import os
import select
import struct
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    import socket
    from typing import NoReturn

    from capsule_runtime.host.burier import Burier
    from capsule_runtime.host.linux import be_called, become_reaper, fork_sibling, stop_reaping
    from capsule_runtime.host.stub import MESSAGE_BYTES
else:
    import _signal as signal
    import _socket as socket

    from burier import Burier
    from linux import be_called, become_reaper, fork_sibling, stop_reaping
    from stub import MESSAGE_BYTES

ANSWER_MS = 2000
ANSWER_BYTES = 4
REHEARSALS = 12
NO_CGROUPS = marshal.dumps(("", ()))
DESCRIPTORS_OF_A_SPAWN = 6
DESCRIPTORS_SPACE = socket.CMSG_SPACE(DESCRIPTORS_OF_A_SPAWN * struct.calcsize("i"))

Kept = tuple[int, ...]
"""What every burier holds: the supervisor's pidfd, the signalfd, the lock, the leases of users."""


class UncertainError(Exception):
    """The zygote was lost: nobody knows whether it forked what it was asked for."""


class Zygote:
    """The warden's view of the process: a pipe that wakes it, and a socket for what its child needs."""

    __slots__ = ("_requests", "_wake", "pid")

    def __init__(self, kept: Kept) -> None:
        """Fork it.

        Raises:
            OSError: the system refuses.
        """
        woken, self._wake = os.pipe2(os.O_CLOEXEC)
        self._requests, theirs = socket.socketpair(
            socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC
        )
        self.pid = os.fork()
        if self.pid == 0:
            try:
                serve(woken, theirs, kept)
            except BaseException as bug:
                sys.excepthook(type(bug), bug, bug.__traceback__)
            finally:
                os._exit(0)
        os.close(woken)
        theirs.close()

    def spawn(self, cgroups: bytes, descriptors: list[int]) -> int:
        """Have a burier forked, see `Burier`, and return its pid.

        Raises:
            BrokenPipeError, ConnectionResetError: it was lost before it heard of this.
            UncertainError: it was lost, or is stuck.
            OSError: the system refuses another process.
        """
        request(self._requests, cgroups, descriptors)
        os.write(self._wake, b"x")
        poll = select.poll()
        poll.register(self._requests, select.POLLIN)
        if not poll.poll(ANSWER_MS):
            os.kill(self.pid, signal.SIGKILL)  # A harness may have stopped it.
        # An answer that is lost with its process is b""; a reset says that nobody read us.
        answer = self._requests.recv(ANSWER_BYTES) if poll.poll(ANSWER_MS) else b""
        if not answer:
            raise UncertainError
        pid = int.from_bytes(answer, "big", signed=True)
        if pid < 0:
            raise OSError(-pid, "fork")
        return pid

    def end(self) -> None:
        """Kill it; the caller reaps it, and has not done so yet."""
        os.kill(self.pid, signal.SIGKILL)
        self.forget()

    def forget(self) -> None:
        """Close what led to it: it is gone."""
        self._requests.close()
        os.close(self._wake)


def serve(woken: int, requests: socket.socket, kept: Kept) -> None:
    """Fork a burier whenever woken, until the warden is gone.

    The loop does next to nothing: what it writes, every burier has a copy of.
    """
    be_called(b"capsule-zygote")
    close_all_but(*kept, woken, requests.fileno())
    lifeline, signals, *_ = kept
    burier = Burier(lifeline, signals)
    # The first is wanted at once, and the next may never be.
    if not fork_when_woken(woken, requests, burier):
        return
    # Not the supervisor's life: its end must not make a rehearsal a burial, and stop its child.
    nobody = os.pidfd_open(os.getpid())
    for _ in range(REHEARSALS):
        rehearse(Burier(nobody, signals))
    os.close(nobody)
    gc.freeze()
    while fork_when_woken(woken, requests, burier):
        pass


def fork_when_woken(woken: int, requests: socket.socket, burier: Burier) -> bool:
    """Wait for the warden, and fork the burier that it asks for; return False once it is gone."""
    if not os.read(woken, 1):
        return False
    try:
        pid = fork_sibling()
    except OSError as refusal:
        for descriptor in receive(requests)[1]:
            os.close(descriptor)
        answer(requests, -(refusal.errno or 1))
        return True
    if pid == 0:
        begin(woken, requests, burier)
    return True


def rehearse(burier: Burier) -> None:
    """Launch nothing, the way a burier does it.

    An interpreter rewrites code that has run some times, and remembers what it looked up. Done here,
    those pages are shared by all buriers; done there, each has its own.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
    kind = socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK
    supervisor, other = socket.socketpair(socket.AF_UNIX, kind)
    nothing = [
        os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC) for _ in range(DESCRIPTORS_OF_A_SPAWN - 1)
    ]
    request(ours, NO_CGROUPS, [supervisor.fileno(), *nothing])
    cgroups, descriptors = receive(theirs)
    answer(theirs, os.getpid())
    become_reaper(b"capsule-zygote")
    burier.start(cgroups, *descriptors)
    burier.live()
    stop_reaping(b"capsule-zygote")
    for descriptor in (descriptors[0], *nothing):
        os.close(descriptor)
    for one in (ours, theirs, supervisor, other):
        one.close()


def request(requests: socket.socket, cgroups: bytes, descriptors: list[int]) -> None:
    """Ask for a burier with *descriptors*."""
    rights = array.array("i", descriptors)
    requests.sendmsg([cgroups], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])


def begin(woken: int, requests: socket.socket, burier: Burier) -> NoReturn:
    """Be the burier that was asked for, or nothing: never a second zygote."""
    try:
        cgroups, descriptors = receive(requests)
        answer(requests, os.getpid())
        requests.close()
        os.close(woken)
        become_burier(burier, cgroups, descriptors)
    finally:
        os._exit(1)


def receive(requests: socket.socket) -> tuple[bytes, list[int]]:
    """Return the next request, as `Zygote.spawn` sends it."""
    words, rights, _, _ = requests.recvmsg(
        MESSAGE_BYTES, DESCRIPTORS_SPACE, socket.MSG_CMSG_CLOEXEC
    )
    return words, taken(rights)


def answer(requests: socket.socket, pid: int) -> None:
    """Answer with the *pid* of a burier; a negative one is why there is none."""
    try:
        requests.send(pid.to_bytes(ANSWER_BYTES, "big", signed=True))
    except (BrokenPipeError, ConnectionResetError):
        pass  # The warden is gone.


def taken(rights: list[tuple[int, int, bytes]]) -> list[int]:
    """Return the descriptors that came with a message."""
    return memoryview(b"".join(data for _, _, data in rights)).cast("i").tolist()


def become_burier(burier: Burier, cgroups: bytes, descriptors: list[int]) -> NoReturn:
    """Be the *burier* of a run, to its end."""
    status = 1
    try:
        os.setsid()
        become_reaper(b"capsule-burier")
        burier.start(cgroups, *descriptors)
        status = burier.live()
    except BaseException as bug:
        sys.excepthook(type(bug), bug, bug.__traceback__)
    finally:
        os._exit(status)


def close_all_but(*kept: int) -> None:
    """Close every descriptor above those of stdio that is not among the *kept*."""
    below = 3
    for descriptor in (*sorted(kept), os.sysconf("SC_OPEN_MAX")):
        os.closerange(below, descriptor)
        below = descriptor + 1
