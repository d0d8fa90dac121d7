"""One run's processes, as the supervisor sees them: a view through the burier's socket.

Nothing here reads in the background. Whoever waits for a tree reads what its burier says, one
message at a time, and several may wait at once; what nobody waits for stays in the socket.
"""

from __future__ import annotations

import marshal
import math
import signal
import socket
from collections.abc import Callable
from contextlib import suppress

import anyio
from msgspec import Struct

from capsule_runtime.errors import HostError
from capsule_runtime.host.handshake import Refusal

BURIAL_SECONDS = 30.0
"""How long a burial may take: the burier's own time, the warden's in its place, and some."""

_MESSAGE_BYTES = 4096


class Exit(Struct, frozen=True):
    """How the harness ended: one of the two is set, or neither when its burier was lost."""

    code: int | None
    signal: int | None


class Burial(Struct, frozen=True):
    """What ending a tree took. *lost*: the burier was killed, and the warden did it."""

    killed: int
    left: int
    milliseconds: int
    lost: bool = False


class Tree:
    """The harness of one run and everything that came of it."""

    def __init__(
        self,
        run: str,
        burier: socket.socket,
        remind: Callable[[str], None],
        cage: str = "",
    ) -> None:
        """*cage* is the name of its cgroups."""
        self.run = run
        self.cage = cage
        self.pid = 0
        self.handed: tuple[int, ...] = ()
        """Descriptors that the harness handed out; theirs to close who serve it."""
        self._burier = burier
        self._remind = remind
        self.limits_met: dict[str, int] = {}
        """Which limits of its cgroups were met, and how often."""
        self._refusal: Refusal | None = None
        self._exit: Exit | None = None
        self._burial: Burial | None = None
        self._asked = False
        self._silent = False
        # One task waits at the socket, for one message; then whoever waits looks again.
        self._reading = anyio.Lock()
        self._patience: set[anyio.CancelScope] = set()
        self._deadline = math.inf

    @property
    def is_over(self) -> bool:
        """Whether there is nothing more to hear of this tree."""
        return self._silent or self._burial is not None

    async def refused(self) -> Refusal:
        """Wait until it is known why there never was a child to talk with."""
        await self._until(lambda: self._refusal is not None)
        return self._refusal or Refusal(0, self._doom())

    def _doom(self) -> str:
        if self._burial is None or self._burial.lost:
            return "silent" if self._silent else "lost"
        return f"ended: {', '.join(self.limits_met)}"

    async def exited(self) -> Exit:
        """Wait until the harness itself has ended; more of its tree may be there for a moment."""
        await self._until(lambda: self._exit is not None)
        return self._exit or Exit(None, None)

    async def buried(self) -> Burial:
        """Wait until no process of the tree is left. Bounded, from its exit or `bury` on.

        Raises:
            HostError: E-HOST-002, the tree cannot be shown to be empty.
        """
        with anyio.CancelScope() as patience:
            self._patience.add(patience)
            try:
                patience.deadline = self._deadline
                await self._until(lambda: self._burial is not None)
            finally:
                self._patience.discard(patience)
        if self._burial is None or self._burial.left:
            raise HostError("E-HOST-002", f"run {self.run}: {self._doubt()}")
        return self._burial

    def signal(self, signum: int) -> None:
        """Send *signum* to the harness and its process group, unless it has ended.

        What has made a group of its own, as tools do, is left to the burial.

        Raises:
            ValueError: there is no such signal.
        """
        self._say("signal", signal.Signals(signum).value)

    def has_moved(self) -> None:
        """Tell the burier that the harness is not what it forked: `pid` is, in a root of its own."""
        self._say("harness", self.pid)

    def bury(self) -> None:
        """Ask for the whole tree to be killed. Asking twice changes nothing."""
        if self._asked or self.is_over:
            return
        self._asked = True
        self._hurry()
        self._say("bury")
        # A burier that its harness has stopped cannot hear us; the warden wakes it, or does it.
        self._remind(self.run)

    def abandon(self) -> None:
        """Break the lifeline of a tree that nothing has proved to be empty."""
        with suppress(OSError):
            self._burier.shutdown(socket.SHUT_RDWR)
        # Who waits at the socket wakes up by that, and closes it.
        if not self._reading.locked():
            self._fall_silent()

    def _doubt(self) -> str:
        if self._burial is not None:
            return f"{self._burial.left} processes could not be killed"
        if self._silent:
            return "its burier and the warden were both killed; processes of it may be left"
        return f"nothing proved its tree empty within {BURIAL_SECONDS:g} s"

    def _hurry(self) -> None:
        self._deadline = min(self._deadline, anyio.current_time() + BURIAL_SECONDS)
        for patience in self._patience:
            patience.deadline = self._deadline

    def _say(self, *words: int | str) -> None:
        if self.is_over:
            return
        # A burier that is gone needs no words; one that takes none is for the warden.
        with suppress(BrokenPipeError, ConnectionResetError, BlockingIOError):
            self._burier.send(marshal.dumps(words))

    async def _until(self, heard: Callable[[], bool]) -> None:
        while not heard() and not self.is_over:
            async with self._reading:
                if not heard() and not self.is_over:
                    await anyio.wait_readable(self._burier)
                    self._receive()

    def _receive(self) -> None:
        try:
            words = self._burier.recv(_MESSAGE_BYTES)
        except (BlockingIOError, ConnectionResetError):
            # A reset says that some word of ours was not read; what was told before it comes next.
            return
        match marshal.loads(words) if words else ():
            case ("limited", str(what), int(times)):
                self.limits_met.setdefault(what, times)
            case ("not-forked", int(number)):
                self._refusal = Refusal(number, "fork")
            case ("exited", code, number):
                self._exit = Exit(code, number)
                self._hurry()
            case ("buried", int(killed), int(left), int(milliseconds), bool(lost)):
                self._burial = Burial(killed, left, milliseconds, lost)
                self._burier.close()
            case ():
                self._fall_silent()
            case other:
                raise ValueError(other)

    def _fall_silent(self) -> None:
        self._silent = True
        self._burier.close()
