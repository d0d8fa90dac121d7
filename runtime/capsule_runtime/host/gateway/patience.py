"""How long a call may wait for what comes next, and what is said if it does not come."""

from __future__ import annotations

import anyio

from capsule_runtime.core.relaying import Fault

_TOO_LONG = Fault(504, "total-timeout", "the call took too long")
_COARSE_SECONDS = 0.5
"""A deadline that is moved for each piece of a stream would cost more than the piece."""


class Patience:
    """One deadline for a call, which is moved from phase to phase and never beyond its last one."""

    def __init__(self, total_seconds: float) -> None:
        self._last = anyio.current_time() + total_seconds
        self._moved = 0.0
        self._fault = _TOO_LONG
        self.scope = anyio.CancelScope(deadline=self._last)

    def wait(self, seconds: float, fault: Fault) -> None:
        """Give what comes next so many *seconds* from now; without it, the call ends for *fault*.

        A wait for the same again moves the deadline a little late, never a little early.
        """
        now = anyio.current_time()
        if fault is self._fault and now - self._moved < min(_COARSE_SECONDS, seconds / 2):
            return
        self._fault, self._moved = fault, now
        self.scope.deadline = min(now + seconds + min(_COARSE_SECONDS, seconds / 2), self._last)

    @property
    def fault(self) -> Fault | None:
        """Return why the call was ended; None if it was not ended by this."""
        if not self.scope.cancelled_caught:
            return None
        return _TOO_LONG if anyio.current_time() >= self._last else self._fault
