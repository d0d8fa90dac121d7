"""A run's burier: the parent of all that the run starts, and what buries it.

Forked by the warden, which loads this file by path: the standard library only. It starts the
harness, then sleeps until something happens. Three things end a run: its harness exits, somebody
asks, or a lifeline breaks. The lifelines are the supervisor's end of the burier's socket and the
life of the supervisor itself, as a pidfd: a child that the supervisor's program forked may hold
the socket open. After any of the three the burier kills whatever the run has left, and exits.

It tells the supervisor, as marshalled tuples: `walls report` when the child has raised its walls,
and waits for `go`; `started pid` or `not-started errno step`; `limited what times` when a cgroup's
limit was met; `exited code signal` when the harness is reaped; then, always last, `buried killed
left milliseconds lost`. It hears `go`, `signal number` and `bury`; SIGUSR1 is the warden's way to
say `bury`.
"""

from __future__ import annotations

import errno
import marshal
import os
import select

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    import socket
    from typing import NoReturn

    from capsule_runtime.host.cgroup import Cage, Cgroups
    from capsule_runtime.host.linux import read_signals
    from capsule_runtime.host.sweep import Sweep
    from capsule_runtime.host.walls import raise_walls
else:
    # `signal` brings `enum`, `socket` more: 4 ms each of a 10 ms start.
    import _signal as signal
    import _socket as socket

    from cgroup import Cage
    from linux import read_signals
    from sweep import Sweep
    from walls import raise_walls

MESSAGE_BYTES = 4096
GO = b"go"


class Burier:
    """One run's process. The descriptors it is given: *supervisor*, a socket for words;
    *lifeline*, the pidfd of the supervisor; *signals*, a signalfd. *cage* is empty yet."""

    __slots__ = (
        "_cage",
        "_harness",
        "_launch",
        "_lifeline",
        "_poll",
        "_signals",
        "_supervisor",
        "_sweep",
    )

    def __init__(self, supervisor: int, lifeline: int, signals: int, cage: Cage) -> None:
        self._cage = cage
        self._supervisor = supervisor
        self._lifeline = lifeline
        self._signals = signals
        self._launch = -1
        self._harness = 0
        self._sweep: Sweep | None = None
        self._poll = select.poll()
        for descriptor in (supervisor, lifeline, signals):
            self._poll.register(descriptor, select.POLLIN)

    def start(self, cgroups: Cgroups, spec: int, stdio: tuple[int, ...]) -> None:
        """Fork the harness that the memfd *spec* describes, and close what is only its own.

        *cgroups* are the name of those that are made for it, and where.
        """
        step = "cgroup"
        try:
            self._cage.make(*cgroups)
            step = "fork"
            for event, wanted in self._cage.events.items():
                self._poll.register(event, wanted)
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self._launch, launch = ours.detach(), theirs.detach()
            self._harness = os.fork()
        except OSError as refusal:
            tell(self._supervisor, "not-started", refusal.errno, step)
            return
        if self._harness == 0:
            become_harness(spec, stdio, launch, self._cage.doors)
        # An end of the harness's output that stays open here would never reach its reader.
        for descriptor in (spec, launch, *stdio):
            os.close(descriptor)
        self._poll.register(self._launch, select.POLLIN)

    def live(self) -> int:
        """Serve until nothing of the run is left; return the exit status."""
        while self._reap():
            pause = self._sweep.pause_ms if self._sweep else self._cage.pause_ms
            ready = self._poll.poll(pause)
            for descriptor, _ in ready:
                self._receive(descriptor)
            if not ready and (met := self._cage.look()) is not None:
                tell(self._supervisor, "limited", *met)
            if self._sweep is not None:
                if self._sweep.left and not self._sweep.pause_ms:
                    self._cage.kill()  # It outlived a strike, as bombs do.
                self._sweep.press()
                if self._sweep.late:
                    break
        sweep = self._sweep or Sweep()
        left = sweep.left if sweep.late else 0
        for what, times in self._cage.met():
            tell(self._supervisor, "limited", what, times)
        self._cage.release()
        tell(self._supervisor, "buried", sweep.killed, left, sweep.milliseconds, False)
        return 1 if left else 0

    def _receive(self, descriptor: int) -> None:
        if descriptor == self._launch:
            self._hear_launch()
        elif descriptor == self._signals:
            self._hear_signals()
        elif descriptor == self._supervisor:
            self._hear_supervisor()
        elif descriptor == self._lifeline:
            self._end_lifeline(descriptor)
        elif (met := self._cage.hear(descriptor)) is not None:
            # One word is enough: a bomb would have thousands.
            self._poll.unregister(descriptor)
            tell(self._supervisor, "limited", *met)

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
            case ("go",):
                self._let_go()
            case other:
                raise ValueError(other)

    def _let_go(self) -> None:
        """Let the child, whose walls are as they should be, become the harness."""
        if self._launch >= 0:
            os.write(self._launch, GO)

    def _signal(self, number: int) -> None:
        # Reaping clears the pid, so it is never that of another process.
        if self._harness:
            try:
                os.kill(self._harness, number)
            except PermissionError:
                pass  # It has become another user. To be asked is not to be killed: see `Sweep`.

    def _end_lifeline(self, descriptor: int) -> None:
        self._poll.unregister(descriptor)
        self._bury()

    def _bury(self) -> None:
        if self._sweep is None:
            self._sweep = Sweep()

    def _hear_launch(self) -> None:
        """Hear how the launch goes: its socket ends when the program runs."""
        words = os.read(self._launch, MESSAGE_BYTES)
        match marshal.loads(words) if words else ():
            case ("walls", report):
                tell(self._supervisor, "walls", report)
                return
            case ():
                tell(self._supervisor, "started", self._harness)
            case failure:
                self._harness = 0
                tell(self._supervisor, "not-started", *failure)
        self._poll.unregister(self._launch)
        os.close(self._launch)
        self._launch = -1

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
        while self._launch >= 0:
            self._hear_launch()
        if self._harness:
            self._harness = 0
            code = os.waitstatus_to_exitcode(status)
            tell(self._supervisor, "exited", *((code, None) if code >= 0 else (None, -code)))
        # A grandchild must not outlive a normal exit, nor hold the output open.
        self._bury()


def tell(supervisor: int, *words: int | str | dict[str, object] | None) -> None:
    """Say *words* to the supervisor at the other end of a run's socket, if it is there."""
    try:
        os.write(supervisor, marshal.dumps(words))
    except (BrokenPipeError, ConnectionResetError):
        pass  # It died, or does not care any more.


def become_harness(
    spec: int, stdio: tuple[int, ...], launch: int, doors: tuple[str, ...]
) -> NoReturn:
    """Turn this fresh child into the harness; on failure tell *launch* errno and step.

    *doors* are the files of its cgroups. If it has walls, it goes on when it is told to.
    """
    failure, step = errno.EINVAL, "read"
    try:
        os.setsid()
        argv, env, cwd, walls = marshal.loads(os.pread(spec, os.fstat(spec).st_size, 0))
        for target, descriptor in enumerate(stdio):
            os.dup2(descriptor, target)
        launch = os.dup2(launch, 3, inheritable=False)
        os.closerange(4, os.sysconf("SC_OPEN_MAX"))
        report = None
        if walls is not None:
            step = "walls"
            report = raise_walls(walls, doors)
        step = "chdir"
        os.chdir(cwd)
        if report is not None:
            os.write(launch, marshal.dumps(("walls", report)))
            if os.read(launch, len(GO)) != GO:
                os._exit(127)
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
