"""The warden's process, as the supervisor holds it."""

from __future__ import annotations

import marshal
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

import anyio

from capsule_runtime.core.wall_limits import Settings
from capsule_runtime.errors import HostError
from capsule_runtime.host.run_users import leases_of_users
from capsule_runtime.host.tree import BURIAL_SECONDS

_KILLED_SECONDS = 5.0
_LAST_WORDS_BYTES = 4096
_COMMAND = (sys.executable, "-I", "-S", str(Path(__file__).with_name("warden.py")))


Words = tuple[str | tuple[tuple[str, Settings], ...], ...]
"""What the warden is told; `watch` says which words there are."""


class WardenProcess:
    """The process, the socket through which it is asked, and what it says when it breaks."""

    def __init__(self, lock_path: str, socket_path: str) -> None:
        with ExitStack() as cleanup, ExitStack() as cleanup_on_fail:
            try:
                self._stderr = os.memfd_create("warden-stderr")
                cleanup_on_fail.callback(os.close, self._stderr)
                self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                cleanup_on_fail.callback(self._socket.close)
                cleanup.callback(theirs.close)
                self._socket.setblocking(False)
                request, leases = theirs.fileno(), leases_of_users()
                words = (str(request), str(os.getpid()), lock_path, socket_path)
                self._process = subprocess.Popen(
                    [*_COMMAND, *words, *map(str, leases)],
                    pass_fds=[request, *leases],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=self._stderr,
                    cwd="/",
                    env=bare_environment(),
                    start_new_session=True,
                )
            except OSError as refusal:
                raise HostError("E-HOST-001", f"cannot start the warden: {refusal}") from refusal
            cleanup_on_fail.pop_all()
        self._broken = False

    def is_dead(self) -> bool:
        return self._broken or self._process.poll() is not None

    def tell(self, words: Words, descriptors: Sequence[int] = ()) -> bool:
        """Send *words*; return False when nobody is there to hear them.

        Raises:
            OSError: the system does not take them.
        """
        try:
            socket.send_fds(self._socket, [marshal.dumps(words)], descriptors)
            # A harness without walls can stop us all.
            self._process.send_signal(signal.SIGCONT)
        except (BrokenPipeError, ConnectionResetError):
            self._broken = True
        return not self._broken

    def last_words(self) -> str:
        """Return the last line that the process wrote, if it wrote any."""
        start = max(0, os.fstat(self._stderr).st_size - _LAST_WORDS_BYTES)
        lines = (
            os.pread(self._stderr, _LAST_WORDS_BYTES, start).decode(errors="replace").split("\n")
        )
        return next((line for line in reversed(lines) if line), "it was killed")

    async def end(self) -> None:
        """Ask it to leave, which it does once every tree is buried; kill it if it does not."""
        with suppress(OSError):
            self.tell(("close",))
        if not self.is_dead():
            with anyio.move_on_after(BURIAL_SECONDS):
                await wait_dead(self._process.pid)
        self.close()

    def close(self) -> None:
        """Release what is held of a process that is dead, or has had its time."""
        self._process.kill()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_KILLED_SECONDS)
        self._socket.close()
        os.close(self._stderr)


async def wait_dead(pid: int) -> None:
    """Wait for the end of the child *pid*, which is not reaped yet."""
    life = os.pidfd_open(pid)
    try:
        await anyio.wait_readable(life)
    finally:
        os.close(life)


def bare_environment() -> dict[str, str]:
    """Return what the interpreter itself may need; a key of ours must not be in /proc/<pid>."""
    return {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
