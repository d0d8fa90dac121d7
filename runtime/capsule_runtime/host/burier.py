"""A run's burier: the parent of all that the run starts, and what buries it.

Forked by the warden, which loads this file by path: the standard library only. It starts the
harness, then sleeps until something happens. Three things end a run: its harness exits, somebody
asks, or a lifeline breaks. The lifelines are the supervisor's end of the burier's socket and the
life of the supervisor itself, as a pidfd: a child that the supervisor's program forked may hold
the socket open. After any of the three the burier kills whatever the run has left, and exits.

It tells the supervisor, as marshalled tuples: `started pid` or `not-started errno step`; `exited code
signal` when the harness is reaped; `limited what times` for each limit that its cgroups met; then,
always last, `buried killed left milliseconds lost`. It hears `signal number` and `bury`; SIGUSR1 is
the warden's way to say `bury`. Until the program runs, the child speaks through the same socket: it
says `walls report` and waits for `go`; any other word ends it.
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

    from capsule_runtime.host.cgroup import Cgroups, kill, make, release
    from capsule_runtime.host.linux import read_signals
    from capsule_runtime.host.sweep import Sweep
    from capsule_runtime.host.walls import raise_walls
else:
    import _signal as signal  # `signal` brings `enum`: 4 ms of a 10 ms start.

    from cgroup import kill, make, release
    from linux import read_signals
    from sweep import Sweep
    from walls import raise_walls

MESSAGE_BYTES = 4096
DUPFD_CLOEXEC = 1030


class Burier:
    """One run's process. The descriptors it is given: *supervisor*, a socket for words;
    *lifeline*, the pidfd of the supervisor; *signals*, a signalfd.
    *cgroups* are, marshalled, the name of those of the run and where they are."""

    __slots__ = (
        "_cgroups",
        "_harness",
        "_launch",
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
        self._launch = -1
        self._harness = 0
        self._sweep: Sweep | None = None
        self._poll = select.poll()
        for descriptor in (lifeline, signals):
            self._poll.register(descriptor, select.POLLIN)

    def start(self, cgroups: bytes, supervisor: int, spec: int, *stdio: int) -> None:
        """Fork the harness that the memfd *spec* describes, and close what is only its own.

        While it launches, it is the child that talks with the supervisor: every word that a burier
        says costs memory of its own, and there may be hundreds.
        """
        self._cgroups, self._supervisor = cgroups, supervisor
        try:
            self._launch, launch = os.pipe2(os.O_CLOEXEC)
            self._harness = os.fork()
        except OSError as refusal:
            tell(self._supervisor, "not-started", refusal.errno, "fork")
            return
        if self._harness == 0:
            become_harness(spec, stdio, launch, self._supervisor, marshal.loads(self._cgroups))
        # An end of the harness's output that stays open here would never reach its reader.
        for descriptor in (spec, launch, *stdio):
            os.close(descriptor)
        self._poll.register(self._launch, select.POLLIN)

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
        if descriptor == self._launch:
            self._learn_launch()
        elif descriptor == self._signals:
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
        except BlockingIOError:
            return
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

    def _bury(self) -> None:
        if self._sweep is None:
            self._sweep = Sweep()

    def _learn_launch(self) -> None:
        """Tell how the launch went: the pipe ends empty when the program runs."""
        failure = os.read(self._launch, MESSAGE_BYTES)
        self._poll.unregister(self._launch)
        os.close(self._launch)
        self._launch = -1
        self._poll.register(self._supervisor, select.POLLIN)
        if failure:
            self._harness = 0
            tell(self._supervisor, "not-started", *marshal.loads(failure))
        else:
            tell(self._supervisor, "started", self._harness)

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
                self._end_harness(status)

    def _end_harness(self, status: int) -> None:
        if self._launch >= 0:
            self._learn_launch()
        if self._harness:
            self._harness = 0
            code = os.waitstatus_to_exitcode(status)
            tell(self._supervisor, "exited", *((code, None) if code >= 0 else (None, -code)))
        # A grandchild must not outlive a normal exit, nor hold the output open.
        self._bury()


class LiveRun:
    """A run whose tree is not proven gone, our copy of its burier's socket, and its cgroups."""

    __slots__ = ("cgroups", "run", "supervisor")

    def __init__(self, run: str, supervisor: int, cgroups: Cgroups) -> None:
        self.run = run
        self.supervisor = supervisor
        self.cgroups = cgroups


def tell(supervisor: int, *words: int | str | dict[str, object] | None) -> None:
    """Say *words* to the supervisor at the other end of a run's socket, if it is there."""
    try:
        os.write(supervisor, marshal.dumps(words))
    except (BrokenPipeError, ConnectionResetError):
        pass  # It died, or does not care any more.


def become_harness(
    spec: int, stdio: tuple[int, ...], launch: int, supervisor: int, cgroups: Cgroups
) -> NoReturn:
    """Turn this fresh child into the harness; on failure tell *launch* errno and step.

    It makes its *cgroups*. If it has walls, it tells *supervisor* what they are, and goes on when
    it hears `go`.
    """
    failure, step = errno.EINVAL, "read"
    try:
        os.setsid()
        argv, env, cwd, walls = marshal.loads(os.pread(spec, os.fstat(spec).st_size, 0))
        # Out of the way of stdio first, whatever numbers they have.
        launch, supervisor = (fcntl.fcntl(one, DUPFD_CLOEXEC, 10) for one in (launch, supervisor))
        for target, descriptor in enumerate(stdio):
            os.dup2(descriptor, target)
        launch = os.dup2(launch, 3, inheritable=False)
        supervisor = os.dup2(supervisor, 4, inheritable=False)
        os.closerange(5, os.sysconf("SC_OPEN_MAX"))
        step = "cgroup"
        make(cgroups)
        report = None
        if walls is not None:
            step = "walls"
            report = raise_walls(walls)
        step = "chdir"
        os.chdir(cwd)
        if report is not None and not is_approved(supervisor, report):
            os._exit(127)
        os.close(supervisor)
        step = "exec"
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.execve(argv[0], argv, env)
    except OSError as refusal:
        failure = refusal.errno or failure
        if step == "walls":
            step = f"walls: {refusal}"
    finally:
        os.write(launch, marshal.dumps((failure, step)))
        os._exit(127)


def is_approved(supervisor: int, report: dict[str, object]) -> bool:
    """Tell *supervisor* what this process is behind; return whether it may run."""
    tell(supervisor, "walls", report)
    poll = select.poll()
    poll.register(supervisor, select.POLLIN)
    poll.poll()
    try:
        words = os.read(supervisor, MESSAGE_BYTES)
    except ConnectionResetError:
        words = b""
    return bool(words) and marshal.loads(words) == ("go",)
