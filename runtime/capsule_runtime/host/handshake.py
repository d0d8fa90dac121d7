"""The talk between a supervisor and the child that is about to become a harness.

It has a socket of its own, which ends with the launch: the child says `here pid report` once its
walls are up, and, where it has some, waits for `go`. Then either `failed errno step`, or an end
without a word: the program runs.
"""

from __future__ import annotations

import marshal
import socket
from dataclasses import dataclass

import anyio

from capsule_runtime.core.wall_report import WallReport, read_report

_MESSAGE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Here:
    """The child is there, and the supervisor sees it as *pid*; *report* is what it is behind."""

    pid: int
    report: WallReport | None


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a harness was not started: the system's *number* for it, and at which *step*.

    Two steps have no number: `lost`, its burier was killed; `silent`, the warden too.
    """

    number: int
    step: str


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
            words = self._ours.recv(_MESSAGE_BYTES)
        except ConnectionResetError:
            words = b""  # It ended without having read what we said.
        match marshal.loads(words) if words else ():
            case ("here", int(pid), None):
                return Here(pid, None)
            case ("here", int(pid), report):
                return Here(pid, read_report(report))
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
