"""The model calls of a run, as its log has them: one by one, and in sum."""

from __future__ import annotations

from typing import assert_never

from msgspec import Struct

from capsule_runtime.core.call_facts import CallEnded, CallFact, CallRefused, CallStarted
from capsule_runtime.core.gateway.reservations import NOTHING, Amount

CALLS_KEPT = 10_000
REFUSALS_KEPT = 1_000
"""Of one run, to be shown one by one. All are counted."""


class Call(Struct, frozen=True):
    """One call: what was held for it and, once it is over, what became of it."""

    started: CallStarted
    ended: CallEnded | None = None

    @property
    def is_unsettled(self) -> bool:
        """Whether nobody knows what it cost, and it may be anything up to what was held."""
        return self.ended is None or self.ended.is_unsettled


class CallFold:
    """Add up the facts of a run."""

    def __init__(self) -> None:
        self.refusals: list[CallRefused] = []
        self.refused = 0
        self.count = 0
        self.settled = NOTHING
        """What the calls that are over were charged with, estimates included."""
        self.estimated = NOTHING
        """Of that, what nobody told, and was charged as it had been held."""
        self._unsettled = NOTHING
        self._open: dict[str, CallStarted] = {}
        self._calls: dict[str, Call] = {}

    @property
    def calls(self) -> tuple[Call, ...]:
        """Return the calls in the order in which they began."""
        return tuple(self._calls.values())

    @property
    def unsettled(self) -> Amount:
        """Return what was held for calls that were cut off, or are not known to be over."""
        return sum((_held(one) for one in self._open.values()), self._unsettled)

    @property
    def taken(self) -> Amount:
        """Return all that counts against a ceiling."""
        return self.settled + self.unsettled

    def apply(self, fact: CallFact) -> None:
        """Take the next fact."""
        match fact:
            case CallStarted():
                self.count += 1
                self._open[fact.call] = fact
                if len(self._calls) < CALLS_KEPT:
                    self._calls[fact.call] = Call(fact)
            case CallEnded():
                self._end(fact)
            case CallRefused():
                self.refused += 1
                if len(self.refusals) < REFUSALS_KEPT:
                    self.refusals.append(fact)
            case _:
                assert_never(fact)

    def _end(self, fact: CallEnded) -> None:
        started = self._open.pop(fact.call, None)
        if started is None:
            return
        if fact.call in self._calls:
            self._calls[fact.call] = Call(started, fact)
        amount = Amount(fact.microusd, fact.tokens)
        if fact.is_unsettled:
            self._unsettled += amount
            return
        self.settled += amount
        if fact.is_estimate:
            self.estimated += amount


def _held(started: CallStarted) -> Amount:
    return Amount(started.microusd, started.tokens)
