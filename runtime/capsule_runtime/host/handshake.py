"""The talk between a supervisor and the child that is about to become a harness.

It has a socket of its own, which ends with the launch: the child says `here pid report` once its
walls are up, and, where it has some, waits for `go`. Then either `failed errno step`, or an end
without a word: the program runs.
"""

from __future__ import annotations

import marshal
import os
import socket
import struct
from pathlib import Path

import anyio
from msgspec import Struct

from capsule_runtime.core.wall_report import NAMESPACES, WallReport, read_report
from capsule_runtime.host.sweep import is_dead, read_stat

_MESSAGE_BYTES = 65536
"""A report names all groups of a user; there may be thousands."""
_CREDENTIALS = struct.Struct("3i")
_HANDED_AT_MOST = 8
_SPACE = socket.CMSG_SPACE(_CREDENTIALS.size) + socket.CMSG_SPACE(_HANDED_AT_MOST * 4)


class Here(Struct, frozen=True):
    """The child is there; *report* is what it is behind."""

    pid: int
    """As the supervisor sees it, whatever the child's own processes see."""
    report: WallReport | None
    handed: tuple[int, ...] = ()
    """Descriptors that it handed out, for the supervisor to serve and to close: what listens in its
    own network, or where the kernel tells of its calls."""


class Refusal(Struct, frozen=True):
    """Why a harness was not started: the system's *number* for it, and at which *step*.

    Three steps have no number: `lost`, its burier was killed; `silent`, the warden too; `ended: `, the
    child was, with the limits that were met.
    """

    number: int
    step: str


def open_talk() -> tuple[socket.socket, socket.socket]:
    """Return the supervisor's end and the child's. Whatever is sent names who sent it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    return ours, theirs


class Handshake:
    """The supervisor's end of the talk."""

    def __init__(self, ours: socket.socket) -> None:
        self._ours = ours

    def close(self) -> None:
        """End the talk; a child that still waits for `go` ends with it."""
        self._ours.close()

    async def hear(self) -> Here | Refusal | None:
        """Wait for the next word of the child; None: there are no more."""
        await anyio.wait_readable(self._ours)
        try:
            words, with_it, _, _ = self._ours.recvmsg(
                _MESSAGE_BYTES, _SPACE, socket.MSG_CMSG_CLOEXEC
            )
        except ConnectionResetError:
            words, with_it = b"", []  # It ended without having read what we said.
        beside = {kind: data for _, kind, data in with_it}
        match marshal.loads(words) if words else ():
            case ("here", None):
                return Here(_pid(beside), None)
            case ("here", report):
                pid, handed = _pid(beside), _handed(beside)
                if (cgroups := _cgroups_of(pid)) is None:
                    for descriptor in handed:
                        os.close(descriptor)
                    return None
                return Here(pid, read_report(report, cgroups, _our_namespaces()), handed)
            case ("failed", int(number), str(step)):
                return Refusal(number, step)
            case ():
                return None
            case other:
                raise ValueError(other)

    def go(self) -> None:
        """Let the child, whose walls are as planned, become the harness."""
        try:
            self._ours.send(marshal.dumps(("go",)))
        except (BrokenPipeError, ConnectionResetError):
            pass  # It was killed: the end of the talk says so.


def _pid(beside: dict[int, bytes]) -> int:
    pid: int = _CREDENTIALS.unpack(beside[socket.SCM_CREDENTIALS])[0]
    return pid


def _handed(beside: dict[int, bytes]) -> tuple[int, ...]:
    return tuple(memoryview(beside.get(socket.SCM_RIGHTS, b"")).cast("i"))


def _cgroups_of(pid: int) -> list[str] | None:
    """Return in which cgroups *pid* is; None if it was killed meanwhile.

    They are seen from outside, for it may have a view of its own.
    """
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8").splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # Who has ended is in none, but it has its number until it is reaped.
    if not (stat := read_stat(pid)) or is_dead(stat):
        return None
    return [line.split(":", 2)[2] for line in lines]


def _our_namespaces() -> dict[str, int]:
    """Return the number of each of our namespaces; a kernel may lack some kinds."""
    places = {name: f"/proc/self/ns/{name}" for name in NAMESPACES}
    return {name: os.stat(place).st_ino for name, place in places.items() if os.path.exists(place)}
