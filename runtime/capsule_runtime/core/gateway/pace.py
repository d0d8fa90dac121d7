"""How many calls a minute: no more than so many begin within any sixty seconds."""

from __future__ import annotations

from collections import deque

_MINUTE = 60.0


class Pace:
    """Count beginnings. The instants that it is given ascend."""

    def __init__(self, per_minute: int | None) -> None:
        self._began: deque[float] = deque(maxlen=per_minute)
        self._per_minute = per_minute

    def begin(self, now: float) -> float | None:
        """Count a call that begins *now*; or return in how many seconds it could begin."""
        if self._per_minute is None:
            return None
        if len(self._began) == self._per_minute and (wait := self._began[0] + _MINUTE - now) > 0:
            return wait
        self._began.append(now)
        return None
