"""A run's burier: the parent of all that the run starts, and what buries it.

Forked by the warden, which loads this file by path: the standard library only. It starts the
harness, then sleeps until something happens. Three things end a run: its harness exits, somebody
asks, or a lifeline breaks. The lifelines are the supervisor's end of the burier's socket and the
life of the supervisor itself, as a pidfd: a child that the supervisor's program forked may hold
the socket open. After any of the three the burier kills whatever the run has left, and exits.

It tells the supervisor, as marshalled tuples: `not-forked errno` if there is no child; `exited code
signal` when that is reaped; `limited what times` for each limit that its cgroups met; then, always
last, `buried killed left milliseconds lost`. It hears `signal number` and `bury`; SIGUSR1 is the
warden's way to say `bury`. How the child becomes the harness is between it and the supervisor, on a
socket of their own: see `Handshake`. In a sealed run another child becomes it, a fork of the first,
which leaves its number where it was told what to start. Every word that a burier says costs memory
of its own, and there may be hundreds.
"""

from __future__ import annotations

import errno
import fcntl
import marshal
import os
import select

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from typing import NoReturn

    from capsule_runtime.host.cgroup import Cgroups, kill, make, make_for_child, release
    from capsule_runtime.host.entering import SUCCESSOR_BYTES, compose, enter
    from capsule_runtime.host.linux import read_signals
    from capsule_runtime.host.sealing import prepare
    from capsule_runtime.host.stub import FAILED, MESSAGE_BYTES, become_program, has_rules, tell
    from capsule_runtime.host.sweep import Sweep, children
else:
    import _signal as signal  # `signal` brings `enum`: 4 ms of a 10 ms start.

    from cgroup import kill, make, make_for_child, release
    from entering import SUCCESSOR_BYTES, compose, enter
    from linux import read_signals
    from sealing import prepare
    from stub import FAILED, MESSAGE_BYTES, become_program, has_rules, tell
    from sweep import Sweep, children

DUPFD_CLOEXEC = 1030


class Burier:
    """One run's process. The descriptors it is given: *supervisor*, a socket for words;
    *lifeline*, the pidfd of the supervisor; *signals*, a signalfd.
    *cgroups* are, marshalled, the name of those of the run and where they are."""

    __slots__ = (
        "_cgroups",
        "_harness",
        "_is_sealed",
        "_last_end",
        "_lifeline",
        "_moved",
        "_poll",
        "_signals",
        "_supervisor",
        "_sweep",
    )

    def __init__(self, lifeline: int, signals: int) -> None:
        self._cgroups = b""
        self._supervisor = -1
        self._lifeline = lifeline
        self._signals = signals
        self._harness = 0
        self._moved = -1
        self._is_sealed = False
        self._last_end = (0, 0)
        self._sweep: Sweep | None = None
        self._poll = select.poll()
        for descriptor in (lifeline, signals):
            self._poll.register(descriptor, select.POLLIN)

    def start(self, cgroups: bytes, supervisor: int, spec: int, talk: int, *stdio: int) -> None:
        """Fork the harness that the memfd *spec* describes, and close what is only its own.

        *talk* is its end of the `Handshake`. Who becomes the harness in its stead it leaves in *spec*.
        """
        self._cgroups, self._supervisor, self._moved = cgroups, supervisor, spec
        try:
            self._harness = os.fork()
        except OSError as refusal:
            tell(supervisor, "not-forked", refusal.errno)
        else:
            if self._harness == 0:
                become_harness(spec, stdio, talk, marshal.loads(cgroups))
        # An end of the harness's output that stays open here would never reach its reader.
        for descriptor in (talk, *stdio):
            os.close(descriptor)
        self._poll.register(supervisor, select.POLLIN)

    def live(self) -> int:
        """Serve until nothing of the run is left; return the exit status."""
        while self._reap():
            for descriptor, _ in self._poll.poll(self._sweep.pause_ms if self._sweep else None):
                self._receive(descriptor)
            if self._sweep is not None:
                if self._sweep.left and not self._sweep.pause_ms:
                    kill(marshal.loads(self._cgroups))  # It outlived a strike, as bombs do.
                self._sweep.press()
                if self._sweep.late:
                    break
        sweep = self._sweep or Sweep()
        left = sweep.left if sweep.late else 0
        for what, times in release(marshal.loads(self._cgroups)):
            tell(self._supervisor, "limited", what, times)
        tell(self._supervisor, "buried", sweep.killed, left, sweep.milliseconds, False)
        os.close(self._moved)
        return 1 if left else 0

    def _receive(self, descriptor: int) -> None:
        if descriptor == self._signals:
            self._hear_signals()
        elif descriptor == self._supervisor:
            self._hear_supervisor()
        else:
            self._end_lifeline(descriptor)

    def _hear_signals(self) -> None:
        if signal.SIGUSR1 in read_signals(self._signals):
            self._bury()

    def _hear_supervisor(self) -> None:
        try:
            words = os.read(self._supervisor, MESSAGE_BYTES)
        except ConnectionResetError:
            words = b""
        if not words:
            self._end_lifeline(self._supervisor)
            return
        match marshal.loads(words):
            case ("signal", int(number)):
                self._signal(number)
            case ("bury",):
                self._bury()
            case other:
                raise ValueError(other)

    def _look_for_successor(self) -> None:
        """Take for the harness who our child has become in a root of its own, if it has."""
        left = b"" if self._is_sealed else os.pread(self._moved, SUCCESSOR_BYTES + 1, 0)
        if len(left) != SUCCESSOR_BYTES:
            return  # It is what our child is to read.
        self._is_sealed = True
        self._harness = int.from_bytes(left, "little")
        if self._harness not in children(os.getpid()):  # It was reaped before we knew of it.
            last, status = self._last_end
            self._end_harness(status if self._harness == last else signal.SIGKILL)

    def _signal(self, number: int) -> None:
        self._look_for_successor()
        # Reaping clears the pid, so it is never that of another process.
        if self._harness:
            try:
                # To its whole group, as a terminal does it: what was started may be a launcher that
                # keeps signals to itself, with the real program as its child.
                os.killpg(self._harness, number)
            except PermissionError:
                pass  # It has become another user. To be asked is not to be killed: see `Sweep`.

    def _end_lifeline(self, descriptor: int) -> None:
        self._poll.unregister(descriptor)
        self._bury()

    def _bury(self, *, after_all: bool = False) -> None:
        if self._sweep is None:
            self._sweep = Sweep(after_all=after_all)

    def _reap(self) -> bool:
        """Take every dead child; return whether living ones are left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            self._last_end = (pid, status)
            self._look_for_successor()
            if pid == self._harness:
                self._end_harness(status)

    def _end_harness(self, status: int) -> None:
        self._harness = 0
        code = os.waitstatus_to_exitcode(status)
        tell(self._supervisor, "exited", *((code, None) if code >= 0 else (None, -code)))
        if self._is_sealed:
            # With bubblewrap its namespace ends, and the kernel kills all that is in there.
            for child in children(os.getpid()):
                os.kill(child, signal.SIGKILL)
        # A grandchild must not outlive a normal exit, nor hold the output open.
        self._bury(after_all=self._is_sealed)


class LiveRun:
    """A run whose tree is not proven gone, our copy of its burier's socket, and its cgroups."""

    __slots__ = ("cgroups", "run", "supervisor")

    def __init__(self, run: str, supervisor: int, cgroups: Cgroups) -> None:
        self.run = run
        self.supervisor = supervisor
        self.cgroups = cgroups


def become_harness(spec: int, stdio: tuple[int, ...], talk: int, cgroups: Cgroups) -> NoReturn:
    """Turn this fresh child into the harness, or say to the supervisor why not.

    It makes its *cgroups*. In a sealed run it is a child of this one that becomes it.
    """
    failure, step = errno.EINVAL, "read"
    try:
        os.setsid()
        launch, sealing, composer = marshal.loads(os.pread(spec, os.fstat(spec).st_size, 0))
        os.ftruncate(spec, 0)
        # Out of the way of stdio first, whatever numbers they have.
        talk, moved = (fcntl.fcntl(end, DUPFD_CLOEXEC, 10) for end in (talk, spec))
        for target, descriptor in enumerate(stdio):
            os.dup2(descriptor, target)
        talk = os.dup2(talk, 3, inheritable=False)
        moved = os.dup2(moved, 4, inheritable=False)
        os.closerange(5, os.sysconf("SC_OPEN_MAX"))
        step = "seal"
        if sealing is not None:
            prepare(sealing)
        composing = compose(composer) if composer and has_rules(launch) else None
        step = "cgroup"
        if composing is None:
            make(cgroups)
            if not composer:
                os.close(moved)
                become_program(talk, launch)
        cgroup = make_for_child(cgroups) if composing else None
        step = "seal"
        # Without rules for files the harness may take over what runs beside it: it is counted too.
        composing = composing or compose(composer)
        if (settled := enter(composing, moved + 1, moved, cgroup)) < 0:
            os._exit(0)
        os.close(moved)
        become_program(talk, launch, settled)
    except OSError as refusal:
        failure = refusal.errno or failure
        if step == "seal":
            step = f"seal: {refusal.strerror}"
    finally:
        tell(talk, "failed", failure, step)
        os._exit(FAILED)
