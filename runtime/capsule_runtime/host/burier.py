"""A run's burier: the parent of all that the run starts, and what buries it.

Forked by the warden, which loads this file by path: the standard library only. It starts the
harness, then sleeps until something happens. Three things end a run: its harness exits, somebody
asks, or a lifeline breaks. The lifelines are the supervisor's end of the burier's socket and the
life of the supervisor itself, as a pidfd: a child that the supervisor's program forked may hold
the socket open. After any of the three the burier kills whatever the run has left, and exits.

It tells the supervisor, as marshalled tuples: `not-forked errno` if there is no child; `exited code
signal` when that is reaped; `limited what times` for each limit that its cgroups met; then, always
last, `buried killed left milliseconds lost`. It hears `signal number`, `bury`, and in a sealed run
`harness pid`; SIGUSR1 is the warden's way to say `bury`. How the child becomes the harness is between it and the supervisor, on a
socket of their own: see `Handshake`. Every word that a burier says costs memory of its own, and
there may be hundreds.
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
    from capsule_runtime.host.entering import compose, enter
    from capsule_runtime.host.linux import read_signals
    from capsule_runtime.host.sealing import prepare
    from capsule_runtime.host.stub import FAILED, MESSAGE_BYTES, become_program, has_rules, tell
    from capsule_runtime.host.sweep import Sweep, children
else:
    import _signal as signal  # `signal` brings `enum`: 4 ms of a 10 ms start.

    from cgroup import kill, make, make_for_child, release
    from entering import compose, enter
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
        self._is_sealed = False
        self._last_end = (0, 0)
        self._sweep: Sweep | None = None
        self._poll = select.poll()
        for descriptor in (lifeline, signals):
            self._poll.register(descriptor, select.POLLIN)

    def start(self, cgroups: bytes, supervisor: int, spec: int, talk: int, *stdio: int) -> None:
        """Fork the harness that the memfd *spec* describes, and close what is only its own.

        *talk* is its end of the `Handshake`.
        """
        self._cgroups, self._supervisor = cgroups, supervisor
        try:
            self._harness = os.fork()
        except OSError as refusal:
            tell(supervisor, "not-forked", refusal.errno)
        else:
            if self._harness == 0:
                become_harness(spec, stdio, talk, marshal.loads(cgroups))
        # An end of the harness's output that stays open here would never reach its reader.
        for descriptor in (spec, talk, *stdio):
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

    def _hear_supervisor(self) -> bool:
        """Heed the next word; return whether there was one."""
        try:
            words = os.read(self._supervisor, MESSAGE_BYTES)
        except BlockingIOError:
            return False
        except ConnectionResetError:
            words = b""
        if not words:
            self._end_lifeline(self._supervisor)
            return False
        match marshal.loads(words):
            case ("signal", int(number)):
                self._signal(number)
            case ("harness", int(pid)):
                self._go_on_with(pid)
            case ("bury",):
                self._bury()
            case other:
                raise ValueError(other)
        return True

    def _go_on_with(self, pid: int) -> None:
        """Take our child *pid*, which went into a root of its own, for the harness."""
        self._is_sealed = True
        if self._sweep is not None:
            return  # What it came from was killed: all is being buried.
        if self._harness:
            os.kill(self._harness, signal.SIGKILL)
        self._harness = pid
        if pid not in children(os.getpid()):  # It was reaped before we knew of it.
            last, status = self._last_end
            self._end_harness(status if pid == last else signal.SIGKILL)

    def _signal(self, number: int) -> None:
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
            if pid == self._harness:
                self._harness = 0
                self._hear_successor()
                if not self._harness:
                    self._end_harness(status)
            else:
                self._last_end = (pid, status)

    def _hear_successor(self) -> None:
        """Hear who the harness is, if what it came from has ended before we were told.

        It was said before that one began, so it waits at the socket.
        """
        while not self._is_sealed and self._sweep is None and self._hear_supervisor():
            pass

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
    """Turn this fresh child into the harness, or say in its *talk* with the supervisor why not.

    It makes its *cgroups*. In a sealed run it is a child of this one that becomes it.
    """
    failure, step = errno.EINVAL, "read"
    try:
        os.setsid()
        launch, sealing, composer = marshal.loads(os.pread(spec, os.fstat(spec).st_size, 0))
        # Out of the way of stdio first, whatever numbers they have.
        talk = fcntl.fcntl(talk, DUPFD_CLOEXEC, 10)
        for target, descriptor in enumerate(stdio):
            os.dup2(descriptor, target)
        talk = os.dup2(talk, 3, inheritable=False)
        os.closerange(4, os.sysconf("SC_OPEN_MAX"))
        step = "seal"
        if sealing is not None:
            prepare(sealing)
        composing = compose(composer) if composer and has_rules(launch) else None
        step = "cgroup"
        if composing is None:
            make(cgroups)
            if not composer:
                become_program(talk, launch)
        cgroup = make_for_child(cgroups) if composing else None
        step = "seal"
        # Without rules for files the harness may take over what runs beside it: it is counted too.
        composing = composing or compose(composer)
        if not enter(composing, talk + 1, cgroup):
            os._exit(FAILED)  # The burier has not ended us: it never came to know of the harness.
        become_program(talk, launch)
    except OSError as refusal:
        failure = refusal.errno or failure
        if step == "seal":
            step = f"seal: {refusal.strerror}"
    finally:
        tell(talk, "failed", failure, step)
        os._exit(FAILED)
