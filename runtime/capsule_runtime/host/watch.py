"""The warden's watch: fork a burier for each run, and do its work when it cannot.

Loaded by path into the warden's bare interpreter: the standard library only. The rules:

* A child that is not a living burier is an orphan: its burier was killed. It is killed at once.
* The watch keeps a copy of each burier's socket until the run's tree is proven gone. So the
  supervisor hears the last word on a run in one place, whether its burier lived to say it or not.
* A burier that was asked to bury has a deadline; behind it, it is killed, and see above.
* The supervisor asks `spawn RUN CAGE GROUPS` (with the burier's socket, the spec and the harness's
  stdio), `bury RUN` and `close`, as marshalled tuples. Visitors are other processes of the same user, or
  root, when the supervisor is stuck: `bury RUN` is answered by `done`, `left N` or `unknown`.
"""

from __future__ import annotations

import errno
import marshal
import os
import select
import struct
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    import socket
    from typing import NoReturn

    from capsule_runtime.host.burier import MESSAGE_BYTES, Burier, tell
    from capsule_runtime.host.cgroup import Cgroups, release
    from capsule_runtime.host.linux import accept, become_reaper, open_signals, read_signals
    from capsule_runtime.host.sweep import SWEEP_SECONDS, Sweep, children
else:
    # The plain modules bring `enum` and `selectors`: 10 ms on top of a start of 10.
    import _signal as signal
    import _socket as socket

    from burier import MESSAGE_BYTES, Burier, tell
    from cgroup import release
    from linux import accept, become_reaper, open_signals, read_signals
    from sweep import SWEEP_SECONDS, Sweep, children

BURIER_SECONDS = SWEEP_SECONDS + 2
VISITORS_AT_MOST = 32
DESCRIPTORS_OF_A_SPAWN = 5
DESCRIPTORS_SPACE = socket.CMSG_SPACE(DESCRIPTORS_OF_A_SPAWN * struct.calcsize("i"))


class LiveRun:
    """A run whose tree is not proven gone, our copy of its burier's socket, and its cgroups."""

    __slots__ = ("cgroups", "run", "supervisor")

    def __init__(self, run: str, supervisor: int, cgroups: Cgroups) -> None:
        self.run = run
        self.supervisor = supervisor
        self.cgroups = cgroups


class Watch:
    """Everything the warden knows. Descriptors: *requests* is the supervisor's socket,
    *lifeline* its pidfd, *lock* what only the end of all buriers frees, *door* the listener for
    visitors and the key that they must know."""

    def __init__(self, requests: int, lifeline: int, lock: int, door: tuple[int, bytes]) -> None:
        listener, self._key = door
        self._requests = socket.socket(fileno=requests)
        self._lifeline = lifeline
        self._listener = listener
        self._signals = open_signals()
        self._inherited = (lifeline, lock, self._signals)
        # By the pid of its burier: who lives, and until when one that was asked may take.
        self._live: dict[int, LiveRun] = {}
        self._asked: dict[int, float] = {}
        self._lost: list[LiveRun] = []
        self._visitors: dict[int, str] = {}
        self._sweep: Sweep | None = None
        self._closing = False
        self._poll = select.poll()
        for descriptor in (requests, lifeline, listener, self._signals):
            self._poll.register(descriptor, select.POLLIN)

    def keep(self) -> None:
        """Start and watch runs until the supervisor is gone and every tree is buried."""
        while not self._closing or self._live or self._lost or self._sweep:
            for descriptor, _ in self._poll.poll(self._pause_ms()):
                self._receive(descriptor)
            if self._asked:
                self._kill_late_buriers()
            if self._lost or self._sweep:
                self._bury_orphans()

    def rehearse(self) -> None:
        """Launch nothing, once, the way a burier does it.

        An interpreter writes down what it does for the first time. Done here, those pages are
        shared by all buriers; done there, each burier has its own (70 KiB when idle).
        """
        reader, writer = os.pipe()
        burier = Burier(writer, self._lifeline, self._signals, ("", ()))
        burier.start(os.memfd_create("nothing"), ())
        burier.live()
        os.close(reader)
        os.close(writer)

    def _pause_ms(self) -> int | None:
        pauses = [self._sweep.pause_ms] if self._sweep else []
        if self._asked:
            pauses.append(max(0, round((min(self._asked.values()) - time.monotonic()) * 1000)))
        return min(pauses, default=None)

    def _receive(self, descriptor: int) -> None:
        if descriptor == self._signals:
            read_signals(descriptor)
            self._reap()
        elif descriptor == self._lifeline:
            self._close()
        elif descriptor == self._listener:
            self._admit()
        elif descriptor in self._visitors:
            self._hear_visitor(descriptor)
        elif not self._closing:
            self._hear_supervisor()

    def _hear_supervisor(self) -> None:
        try:
            words, rights, _, _ = self._requests.recvmsg(
                MESSAGE_BYTES, DESCRIPTORS_SPACE, socket.MSG_CMSG_CLOEXEC
            )
        except ConnectionResetError:
            words, rights = b"", []
        match marshal.loads(words) if words else ("close",):
            case ("spawn", str(run), str(cage), groups):
                descriptors = b"".join(data for _, _, data in rights)
                self._spawn(run, (cage, groups), memoryview(descriptors).cast("i").tolist())
            case ("bury", str(run)):
                self._ask_to_bury(run)
            case ("close",):
                self._close()
            case other:
                raise ValueError(other)

    def _spawn(self, run: str, cgroups: Cgroups, descriptors: list[int]) -> None:
        """Fork the burier of *run*; the first of *descriptors* is its socket, then see `Burier`."""
        try:
            if len(descriptors) < DESCRIPTORS_OF_A_SPAWN:
                raise OSError(errno.EMFILE, "the kernel dropped descriptors")
            burier = os.fork()
            if burier == 0:
                self._become_burier(cgroups, *descriptors)
            self._live[burier] = LiveRun(run, descriptors.pop(0), cgroups)
        except OSError as refusal:
            for supervisor in descriptors[:1]:
                tell(supervisor, "not-started", refusal.errno, "fork")
                tell(supervisor, "buried", 0, 0, 0, False)
        for descriptor in descriptors:
            os.close(descriptor)

    def _become_burier(self, cgroups: Cgroups, supervisor: int, spec: int, *stdio: int) -> NoReturn:
        status = 1
        try:
            os.setsid()
            become_reaper(b"capsule-burier")
            # The socket of another run, held here, would keep its last word from being the last.
            close_all_but(*self._inherited, supervisor, spec, *stdio)
            burier = Burier(supervisor, self._lifeline, self._signals, cgroups)
            burier.start(spec, stdio)
            status = burier.live()
        except BaseException as bug:
            sys.excepthook(type(bug), bug, bug.__traceback__)
        finally:
            os._exit(status)

    def _ask_to_bury(self, run: str) -> bool:
        """Ask the buriers of *run*; return whether there is anything of it to wait for."""
        for burier in [pid for pid, live in self._live.items() if live.run == run]:
            self._ask(burier)
        return any(live.run == run for live in (*self._live.values(), *self._lost))

    def _ask(self, burier: int) -> None:
        self._asked.setdefault(burier, time.monotonic() + BURIER_SECONDS)
        os.kill(burier, signal.SIGUSR1)
        # Its own harness may have stopped it.
        os.kill(burier, signal.SIGCONT)

    def _close(self) -> None:
        if self._closing:
            return
        self._closing = True
        self._poll.unregister(self._lifeline)
        self._poll.unregister(self._requests)
        for burier in self._live:
            self._ask(burier)

    def _kill_late_buriers(self) -> None:
        now = time.monotonic()
        for burier, deadline in self._asked.items():
            if deadline <= now:
                self._asked[burier] = now + BURIER_SECONDS
                os.kill(burier, signal.SIGKILL)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._asked.pop(pid, None)
            live = self._live.pop(pid, None)
            if live is not None and status == 0:
                self._settle(live, b"done")
            elif live is not None:
                self._lost.append(live)

    def _bury_orphans(self) -> None:
        sweep = self._sweep = self._sweep or Sweep(spared=self._live)
        if all(child in self._live for child in children(os.getpid())):
            self._settle_lost(sweep, 0)
            self._sweep = None
            return
        sweep.press()
        if sweep.late:
            self._settle_lost(sweep, sweep.left)

    def _settle_lost(self, sweep: Sweep, left: int) -> None:
        for live in self._lost:
            for what, times in release(live.cgroups):
                tell(live.supervisor, "limited", what, times)
            tell(live.supervisor, "buried", sweep.killed, left, sweep.milliseconds, True)
            self._settle(live, b"left %d" % left if left else b"done")
        self._lost.clear()

    def _settle(self, live: LiveRun, answer: bytes) -> None:
        os.close(live.supervisor)
        for visitor in [fd for fd, run in self._visitors.items() if run == live.run]:
            self._answer(visitor, answer)

    def _admit(self) -> None:
        visitor = accept(self._listener)
        if visitor is None:
            return
        self._visitors[visitor] = ""
        self._poll.register(visitor, select.POLLIN)
        if len(self._visitors) > VISITORS_AT_MOST:
            # Whoever asked is waited for; one that only stands there makes room.
            idle = (one for one, run in self._visitors.items() if not run)
            self._answer(next(idle), b"unknown")

    def _hear_visitor(self, visitor: int) -> None:
        try:
            words = os.read(visitor, MESSAGE_BYTES)
        except ConnectionResetError:
            words = b""
        _, told, run = words.decode(errors="replace").partition(f"bury {self._key.decode()} ")
        if told and self._ask_to_bury(run):
            self._visitors[visitor] = run
        else:
            self._answer(visitor, b"unknown")

    def _answer(self, visitor: int, answer: bytes) -> None:
        try:
            os.write(visitor, answer)
        except (BrokenPipeError, ConnectionResetError):
            pass  # It did not wait for us.
        self._poll.unregister(visitor)
        del self._visitors[visitor]
        os.close(visitor)


def close_all_but(*kept: int) -> None:
    """Close every descriptor above those of stdio that is not among the *kept*."""
    below = 3
    for descriptor in (*sorted(kept), os.sysconf("SC_OPEN_MAX")):
        os.closerange(below, descriptor)
        below = descriptor + 1
