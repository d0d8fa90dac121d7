"""What one run holds of the ceilings that all runs of a UTC day share.

Usage is known only after a call. So a run reserves a slice of the day before it starts, and may
spend only what it holds; before its next call, judged by the largest one it made so far, it asks
for more. No slice is cut from what is not there: the slices of all runs never pass the ceiling, and
what is used passes it at most by what the calls that are under way take beyond their runs' slices.
What a run did not use of its slices is given back at its end; what it used beyond them counts too.
"""

from __future__ import annotations

from msgspec import Struct

from capsule_runtime.core.ceilings import Ceiling, DayCeilings, DayReached

_SHARERS = 8
_SLICES = 64
"""How many slices a ceiling has at most, or else the last of it would go in ever smaller ones."""


class Needs(Struct, frozen=True):
    """What a run used since its start, and what a call took at most. Micro-dollars and tokens."""

    microusd: int = 0
    tokens: int = 0
    call_microusd: int = 0
    call_tokens: int = 0


class Share(Struct, frozen=True):
    """What a run may have used, counted from its start, on *day*. None is no ceiling.

    *taken_microusd* and *taken_tokens* are what all runs of the day used or hold.
    """

    day: str
    ceilings: DayCeilings
    microusd: int | None = None
    tokens: int | None = None
    taken_microusd: int = 0
    taken_tokens: int = 0

    def lack(self, needs: Needs) -> DayReached | None:
        """Return what is in the way of another call, if something is."""
        if (limit := self.ceilings.microusd) is not None and self.microusd is not None:
            room = self.microusd - needs.microusd
            if room < max(1, needs.call_microusd):
                taken, call = self.taken_microusd, needs.call_microusd
                return DayReached(Ceiling.USD, self.day, limit, taken, room, call)
        if (limit := self.ceilings.tokens) is not None and self.tokens is not None:
            room = self.tokens - needs.tokens
            if room < max(1, needs.call_tokens):
                taken, call = self.taken_tokens, needs.call_tokens
                return DayReached(Ceiling.TOKENS, self.day, limit, taken, room, call)
        return None


def slice_of(ceiling: int, taken: int, wanted: int) -> int:
    """Return how much to reserve where *wanted* is missing: more than that, if there is enough."""
    if wanted <= 0:
        return 0
    room = max(0, ceiling - taken)
    return min(room, max(wanted, room // _SHARERS, ceiling // _SLICES))
