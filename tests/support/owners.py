"""Supervisors in processes of their own, which a test may stop or kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from support.supervised import CHILD


class Owner:
    """A process that owns one run and tells what it follows of it. `log` grows as it is read."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        assert process.stdout is not None
        self._told = process.stdout
        self.run = self._told.readline().decode().strip()
        self.log = b""

    def hear(self, words: str) -> None:
        """Read what it tells until *words* come by."""
        while words.encode() not in self.log:
            line = self._told.readline()
            assert line, f"it ended without {words!r}"
            self.log += line

    def hear_all(self) -> None:
        """Read what it tells to the end."""
        self.log += self._told.read()

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def stop(self) -> None:
        """Stop it as Ctrl-Z does, and wait until it stands still."""
        self.send(signal.SIGSTOP)
        os.waitpid(self.process.pid, os.WUNTRACED)

    def kill(self) -> None:
        """Kill it; what it had already told can still be read."""
        self.process.kill()
        self.process.wait()


@contextmanager
def owner(state: Path, capsule: Path, *context: str) -> Generator[Owner]:
    """Have another process run *capsule*. It does not outlive the block."""
    command = [sys.executable, str(CHILD), "own", str(state), str(capsule), *context]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            yield Owner(process)
        finally:
            process.kill()
