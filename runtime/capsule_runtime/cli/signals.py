"""What the signals of this process mean for a run that it owns."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Generator
from contextlib import contextmanager
from signal import Signals

import anyio

from capsule_runtime.active_run import ActiveRun
from capsule_runtime.cli.views import View
from capsule_runtime.core.outcome import OUTCOME_OF, Reason, exit_code
from capsule_runtime.ending import URGENT_GRACE_SECONDS

REASON_OF_SIGNAL = {
    signal.SIGINT: Reason.INTERRUPTED,
    signal.SIGTERM: Reason.TERMINATED,
    signal.SIGHUP: Reason.HANG_UP,
}
_NOTICES = {
    Reason.INTERRUPTED: "interrupting the run; Ctrl-C again kills it",
    Reason.KILLED: "killing the run",
    Reason.TERMINATED: "told to terminate: stopping the run",
    Reason.HANG_UP: "the terminal hung up: stopping the run",
}


def exit_status_of_signal(received: Signals) -> int:
    """Return what the process exits with when *received* ended it before there was a run."""
    reason = REASON_OF_SIGNAL[received]
    return exit_code(OUTCOME_OF[reason], reason)


@contextmanager
def heeded_signals() -> Generator[AsyncIterator[Signals]]:
    """Receive the signals that stop us, but for those that our caller had us ignore.

    Afterwards they are ignored: whoever heeded them leaves now, with a status that is decided.

    `nohup` ignores SIGHUP, and a shell without job control ignores SIGINT for what it runs in the
    background: whoever did that meant it.
    """
    heeded = [s for s in REASON_OF_SIGNAL if signal.getsignal(s) is not signal.SIG_IGN]
    try:
        with anyio.open_signal_receiver(*heeded) as received:
            try:
                yield received
            finally:
                # Closing the receiver gives them back their usual, deadly meaning for a moment.
                signal.pthread_sigmask(signal.SIG_BLOCK, heeded)
    finally:
        for number in heeded:
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, heeded)


class Stopper:
    """Stop the run of this process when it is told to; before there is one, give up starting it."""

    def __init__(self, view: View, signals: AsyncIterator[Signals]) -> None:
        self.first: Signals | None = None
        """The first signal that came."""
        self.asked = anyio.Event()
        self._view = view
        self._signals = signals
        self._is_abandoned = False
        self._run: ActiveRun | None = None
        self._may_give_up: anyio.CancelScope | None = None

    async def watch(self) -> None:
        """Act on signals, for ever."""
        async for received in self._signals:
            if self.first is None:
                self.first = received
            if self._run is not None:
                await self._stop(self._run, received)
            elif self._may_give_up is not None:
                self._may_give_up.cancel()

    async def take(self, run: ActiveRun) -> None:
        """From now on signals are for *run*, also one that came while it was being started."""
        self._run = run
        if self.first is not None:
            await self._stop(run, self.first)

    def abandon(self) -> None:
        """Give up waiting, now or later: whoever wanted the run is gone. A run goes on."""
        self._is_abandoned = True
        if self._may_give_up is not None:
            self._may_give_up.cancel()

    @contextmanager
    def gives_up(self) -> Generator[None]:
        """Leave the block when a signal comes; only where nothing has been started yet."""
        with anyio.CancelScope() as scope:
            self._may_give_up = scope
            if self.first is not None or self._is_abandoned:
                scope.cancel()
            try:
                yield
            finally:
                self._may_give_up = None
                if self._is_abandoned and self.first is None:
                    self.first = signal.SIGHUP

    def notice(self, text: str) -> None:
        """Tell whoever watches that something keeps us."""
        self._view.notice(text)

    async def stop(self, reason: Reason, message: str = "") -> None:
        """Ask the run to stop for *reason*."""
        if self._run is not None:
            self.asked.set()
            grace = None if reason is Reason.KILLED else URGENT_GRACE_SECONDS
            await self._run.stop(reason, message, grace=grace)

    async def _stop(self, run: ActiveRun, received: Signals) -> None:
        reason = REASON_OF_SIGNAL[received]
        if reason is Reason.INTERRUPTED and self.asked.is_set():
            reason = Reason.KILLED
        self._view.notice(_NOTICES[reason])
        await self.stop(reason)
