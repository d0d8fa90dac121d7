"""The warden's watch: fork a burier for each run, and do its work when it cannot.

Loaded by path into the warden's bare interpreter: the standard library only. The rules:

* A child that is not a living burier is an orphan: its burier was killed. It is killed at once.
* The watch keeps a copy of each burier's socket until the run's tree is proven gone. So the
  supervisor hears the last word on a run in one place, whether its burier lived to say it or not.
* A burier that was asked to bury has a deadline; behind it, it is killed, and see above.
* The supervisor asks `spawn RUN CAGE GROUPS` (with the descriptors that `Burier.start` takes),
  `bury RUN` and `close`, as marshalled tuples. Others come to the door: see `Door`.
* A zygote forks the buriers: see `Zygote`.
"""

from __future__ import annotations

import errno
import marshal
import os
import select
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    import socket

    from capsule_runtime.host.burier import Burier, LiveRun
    from capsule_runtime.host.cgroup import Cgroups, release
    from capsule_runtime.host.door import Door
    from capsule_runtime.host.linux import open_signals, read_signals
    from capsule_runtime.host.stub import MESSAGE_BYTES, tell
    from capsule_runtime.host.sweep import SWEEP_SECONDS, Sweep, children
    from capsule_runtime.host.zygote import (
        DESCRIPTORS_OF_A_SPAWN,
        DESCRIPTORS_SPACE,
        Kept,
        UncertainError,
        Zygote,
        become_burier,
        close_all_but,
        taken,
    )
else:
    # The plain modules bring `enum` and `selectors`: 10 ms on top of a start of 10.
    import _signal as signal
    import _socket as socket

    from burier import Burier, LiveRun
    from cgroup import release
    from door import Door
    from linux import open_signals, read_signals
    from stub import MESSAGE_BYTES, tell
    from sweep import SWEEP_SECONDS, Sweep, children
    from zygote import (
        DESCRIPTORS_OF_A_SPAWN,
        DESCRIPTORS_SPACE,
        UncertainError,
        Zygote,
        become_burier,
        close_all_but,
        taken,
    )

BURIER_SECONDS = SWEEP_SECONDS + 2
NO_SIBLINGS = (errno.ENOSYS, errno.EPERM, errno.EINVAL)
"""What the system says where it forks no siblings: old kernels, and some filters of calls."""


class Watch:
    """Everything the warden knows. Descriptors: *requests* is the supervisor's socket,
    *lifeline* its pidfd, *held* what only the end of all buriers frees, *door* the listener for
    visitors and their key."""

    def __init__(self, requests: int, lifeline: int, held: Kept, door: tuple[int, bytes]) -> None:
        self._requests = socket.socket(fileno=requests)
        self._lifeline = lifeline
        self._signals = open_signals()
        self._kept = (lifeline, self._signals, *held)
        self._zygote: Zygote | None = None
        self._has_siblings = True
        # By the pid of its burier: who lives, and until when one that was asked may take.
        self._live: dict[int, LiveRun] = {}
        self._asked: dict[int, float] = {}
        # What is no orphan: they, and zygotes.
        self._spared: set[int] = set()
        self._lost: list[LiveRun] = []
        self._sweep: Sweep | None = None
        self._closing = False
        self._poll = select.poll()
        for descriptor in (requests, lifeline, self._signals):
            self._poll.register(descriptor, select.POLLIN)
        self._door = Door(*door, self._poll)

    def keep(self) -> None:
        """Start and watch runs until the supervisor is gone and every tree is buried."""
        self._need_zygote()
        self._watch()
        if self._zygote is not None:
            pid = self._zygote.pid
            self._end_zygote(self._zygote)
            os.waitpid(pid, 0)
            self._spared.discard(pid)
        self._watch()

    def _watch(self) -> None:
        while not self._closing or self._live or self._lost or self._sweep:
            for descriptor, _ in self._poll.poll(self._pause_ms()):
                self._receive(descriptor)
            self._kill_late_buriers()
            if self._lost or self._sweep:
                self._bury_orphans()

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
        elif descriptor == self._door.listener:
            self._door.admit()
        elif descriptor in self._door:
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
                self._spawn(run, (cage, groups), taken(rights))
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
            burier = self._fork(cgroups, descriptors)
            live = LiveRun(run, descriptors.pop(0), cgroups)
            if burier is None:
                self._lost.append(live)
            else:
                self._live[burier] = live
                self._spared.add(burier)
        except OSError as refusal:
            for supervisor in descriptors[:1]:
                tell(supervisor, "not-forked", refusal.errno)
                tell(supervisor, "buried", 0, 0, 0, False)
        for descriptor in descriptors:
            os.close(descriptor)

    def _fork(self, cgroups: Cgroups, descriptors: list[int]) -> int | None:
        """Return a new burier; None when nobody knows whether there is one: then it is an orphan."""
        told = marshal.dumps(cgroups)
        while self._has_siblings:
            zygote = self._need_zygote()
            try:
                return zygote.spawn(told, descriptors)
            except (BrokenPipeError, ConnectionResetError):
                self._end_zygote(zygote)  # It had been killed before.
            except UncertainError:
                self._end_zygote(zygote)
                return None
            except OSError as refusal:
                if refusal.errno not in NO_SIBLINGS:
                    raise
                self._has_siblings = False
        burier = os.fork()
        if burier == 0:
            # The socket of another run, held here, would keep its last word from being the last.
            close_all_but(*self._kept, *descriptors)
            become_burier(Burier(self._lifeline, self._signals), told, descriptors)
        return burier

    def _need_zygote(self) -> Zygote:
        if self._zygote is None:
            self._zygote = Zygote(self._kept)
            self._spared.add(self._zygote.pid)
        return self._zygote

    def _end_zygote(self, zygote: Zygote) -> None:
        zygote.end()
        self._lose_zygote()

    def _lose_zygote(self) -> None:
        self._zygote = None
        # It may have been in the middle of a rehearsal, with a child.
        self._sweep = self._sweep or Sweep(spared=self._spared)

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

    def _hear_visitor(self, visitor: int) -> None:
        run = self._door.hear(visitor)
        if run is not None and self._ask_to_bury(run):
            self._door.keep_waiting(visitor, run)
        else:
            self._door.answer(visitor, b"unknown")

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
            self._spared.discard(pid)
            if self._zygote is not None and pid == self._zygote.pid:
                self._zygote.forget()
                self._lose_zygote()
            live = self._live.pop(pid, None)
            if live is not None and status == 0:
                self._settle(live, b"done")
            elif live is not None:
                self._lost.append(live)

    def _bury_orphans(self) -> None:
        sweep = self._sweep = self._sweep or Sweep(spared=self._spared)
        if all(child in self._spared for child in children(os.getpid())):
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
        self._door.settle(live.run, answer)
