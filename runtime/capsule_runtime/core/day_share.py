"""What one run holds of the ceilings that all runs of a UTC day share.

Usage is known only after a call, and by then the next one may be under way. So a run reserves a
slice of the day before it starts, and is stopped while it still holds a call: the one that may be
under way, judged by the largest so far. It asks for more one call before that, so that the answer
is there in time. No slice is cut from what is not there, so the slices of all runs never pass the
ceiling. What is used passes it only where a call takes more than any before it in its run, or calls
are begun, or over, before the harness has heard that it is to stop. What a run did not use of its slices is given back at
its end; what it used beyond them counts too.
"""

from __future__ import annotations

from msgspec import Struct

from capsule_runtime.core.ceilings import Ceiling, DayCeilings, DayReached

CALLS_HELD = 2
"""How many calls a run must hold to go on: the one that may be under way, and another."""
CALLS_WANTED = 3
"""How many calls a run wants to hold; it asks for more when it holds less."""
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

    def lack(self, needs: Needs, calls: int = CALLS_HELD) -> DayReached | None:
        """Return what keeps this from covering so many more *calls*, if something does."""
        if (limit := self.ceilings.microusd) is not None and self.microusd is not None:
            room = self.microusd - needs.microusd
            if room < max(1, calls * needs.call_microusd):
                taken, call = self.taken_microusd, needs.call_microusd
                return DayReached(Ceiling.USD, self.day, limit, taken, room, call)
        if (limit := self.ceilings.tokens) is not None and self.tokens is not None:
            room = self.tokens - needs.tokens
            if room < max(1, calls * needs.call_tokens):
                taken, call = self.taken_tokens, needs.call_tokens
                return DayReached(Ceiling.TOKENS, self.day, limit, taken, room, call)
        return None


def slice_of(ceiling: int, taken: int, wanted: int) -> int:
    """Return how much to reserve where *wanted* is missing: more than that, if there is enough."""
    if wanted <= 0:
        return 0
    room = max(0, ceiling - taken)
    return min(room, max(wanted, room // _SHARERS, ceiling // _SLICES))
