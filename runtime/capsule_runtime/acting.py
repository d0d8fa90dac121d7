"""Do what a run decided: to its harness, and to the folder of what it leaves."""

from __future__ import annotations

from pathlib import Path
from typing import assert_never

from capsule_runtime.core.actions import (
    Bury,
    HandOver,
    Interrupt,
    Reply,
    WindDown,
    WriteResult,
)
from capsule_runtime.deadline_watch import DeadlineWatch
from capsule_runtime.deciding import Act
from capsule_runtime.guarded import GuardedDriver
from capsule_runtime.host.homes import write_result
from capsule_runtime.host.process import Tree
from capsule_runtime.host.stdio import Stdio
from capsule_runtime.messages import Send


class Hands:
    """What reaches the harness of one attempt, once there is one."""

    def __init__(self, driver: GuardedDriver) -> None:
        self.out = Path()
        self.watch: DeadlineWatch | None = None
        self._driver = driver
        self._tree: Tree | None = None
        self._stdio: Stdio | None = None

    def hold(self, tree: Tree, stdio: Stdio) -> None:
        """Act on *tree* and its *stdio* from now on."""
        self._tree, self._stdio = tree, stdio

    @property
    def unread_bytes(self) -> int:
        """Return how much was dropped, because the harness did not read it."""
        return self._stdio.stdin.dropped_bytes if self._stdio else 0

    def act(self, action: Act) -> str | None:
        """Perform *action*; return what went wrong."""
        match action:
            case WriteResult(text):
                try:
                    write_result(self.out, text)
                except OSError as exc:
                    return f"out/result.txt was not written: {exc}"
            case Reply(id, decision):
                self._send(self._driver.answer(id, decision))
            case HandOver(data):
                self._send(Send(data))
            case Interrupt():
                self._interrupt()
            case WindDown():
                if self._stdio:
                    self._stdio.stdin.end()
                self._give_grace()
            case Bury():
                if self._tree:
                    self._tree.bury()
            case _:
                assert_never(action)
        return None

    def _interrupt(self) -> None:
        """Ask the harness to stop in its own dialect; the grace runs from here."""
        signal = self._driver.describe().interrupt_signal
        line = self._driver.interrupt()
        self._send(line)
        if self._tree and signal is not None:
            self._tree.signal(signal)
        if line is None and signal is None and self.watch:
            self.watch.shorten_grace(0)  # it cannot be asked, so there is nothing to wait for
        self._give_grace()

    def _give_grace(self) -> None:
        if self.watch:
            self.watch.give_grace()

    def _send(self, line: Send | None) -> None:
        if self._stdio and line is not None:
            self._stdio.stdin.send(line.data)
