"""Verdicts become facts, a bounded number of them; and facts become what a person wants to know."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct, field

from capsule_runtime.core.network_facts import Egress, EgressMore
from capsule_runtime.core.verdicts import Door, Ending, Verdict, Why

ALLOWED_AT_MOST = 2_000
REFUSED_AT_MOST = 1_000
"""Facts of one run. Counted apart: who asks in vain must not hide what it reached."""
_MESSAGE_LENGTH = 512
_PLACES_AT_MOST = 200

Make = Callable[[int, str, str], Egress | EgressMore]
"""Build a fact from seq, at and run."""


class VerdictBook:
    """Which verdicts of a run are facts of their own, and which are only counted."""

    def __init__(self) -> None:
        self._allowed = 0
        self._refused = 0
        self._sent = 0
        self._received = 0

    def enter(self, door: Door, verdict: Verdict) -> Make | None:
        """Return the fact for *verdict*; None if it is only counted."""
        if verdict.is_allowed:
            self._allowed += 1
            is_counted = self._allowed > ALLOWED_AT_MOST
        else:
            self._refused += 1
            is_counted = self._refused > REFUSED_AT_MOST
        if not is_counted:
            return _fact_of(door, verdict)
        self._sent += verdict.sent
        self._received += verdict.received
        return None

    def rest(self) -> Make | None:
        """Return the one fact for all that were only counted; None if there are none."""
        allowed = max(0, self._allowed - ALLOWED_AT_MOST)
        refused = max(0, self._refused - REFUSED_AT_MOST)
        sent, received = self._sent, self._received
        if not (allowed or refused):
            return None
        return lambda seq, at, run: EgressMore(seq, at, run, allowed, refused, sent, received)


def _fact_of(door: Door, verdict: Verdict) -> Make:
    reason = verdict.reason
    return lambda seq, at, run: Egress(
        seq,
        at,
        run,
        door,
        refused=reason if isinstance(reason, Why) else None,
        ended=reason if isinstance(reason, Ending) else None,
        place=str(verdict.target) if verdict.target else "",
        address=verdict.address,
        message=verdict.message[:_MESSAGE_LENGTH],
        sent=verdict.sent,
        received=verdict.received,
        ms=verdict.ms,
    )


class Reached(Struct, frozen=True):
    """What a run had to do with one place, or with what named none."""

    door: Door
    place: str
    allowed: int
    refused: int
    sent_bytes: int
    received_bytes: int
    why: tuple[Why, ...]
    """Of the refusals."""


class EgressSummary(Struct, frozen=True):
    """What a run reached in the network, and what it was refused."""

    allowed: int
    refused: int
    sent_bytes: int
    received_bytes: int
    places: tuple[Reached, ...]
    """In the order in which they were first asked for."""
    is_cut: bool
    """Whether there were more places than are named."""


class _Sum(Struct):
    allowed: int = 0
    refused: int = 0
    sent: int = 0
    received: int = 0
    why: dict[Why, None] = field(default_factory=dict[Why, None])

    def add(self, fact: Egress | EgressMore) -> None:
        if isinstance(fact, EgressMore):
            self.allowed += fact.allowed
            self.refused += fact.refused
        elif fact.refused is None:
            self.allowed += 1
        else:
            self.refused += 1
            self.why[fact.refused] = None
        self.sent += fact.sent
        self.received += fact.received


class EgressFold:
    """Add up the facts of a run."""

    def __init__(self) -> None:
        self._all = _Sum()
        self._places: dict[tuple[Door, str], _Sum] = {}
        self._is_cut = False

    def apply(self, fact: Egress | EgressMore) -> None:
        """Take the next fact."""
        self._all.add(fact)
        if isinstance(fact, EgressMore):
            self._is_cut = True
            return
        key = (fact.door, fact.place)
        if key in self._places or len(self._places) < _PLACES_AT_MOST:
            self._places.setdefault(key, _Sum()).add(fact)
        else:
            self._is_cut = True

    @property
    def summary(self) -> EgressSummary | None:
        """Return all of it; None if the run tried to reach nothing."""
        whole = self._all
        if not (whole.allowed or whole.refused):
            return None
        places = tuple(
            Reached(door, place, it.allowed, it.refused, it.sent, it.received, tuple(it.why))
            for (door, place), it in self._places.items()
        )
        sums = (whole.allowed, whole.refused, whole.sent, whole.received)
        return EgressSummary(*sums, places, self._is_cut)
