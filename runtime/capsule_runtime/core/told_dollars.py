"""What a harness says that its calls cost: kept beside our own account, never part of it.

A report of a call that names one already heard of replaces what was said of it. A cumulative report says
what one model cost so far in this attempt; only what it has beyond all that was told of it is new, and
calls of which nothing was told are in it. A call that is in no report leaves the sum partial.
"""

from __future__ import annotations

from typing import NamedTuple

from capsule_runtime.core.money import MICRODOLLARS, bounded
from capsule_runtime.core.usage import MOST_CALLS
from capsule_runtime.events import Usage

MOST_USD = 1e9
"""A driver in Python may say anything."""
_GRAINS = 10**6
"""In one micro-dollar. Sums are kept in these, so that only what is shown was rounded."""
_REST = ""
"""The model of calls that have no place of their own any more."""


class ToldPart(NamedTuple):
    """What was told of one call, or of many."""

    model: str
    grains: int | None
    """Millionths of a micro-dollar; None if nothing was told."""


class ToldSum:
    """A sum of parts that were told, and whether some were not."""

    def __init__(self) -> None:
        self._grains = self._told = self._untold = 0

    def add(self, part: ToldPart, sign: int = 1) -> None:
        """Add *part*, or with the *sign* -1 take it out again."""
        if part.grains is None:
            self._untold += sign
        else:
            self._grains += sign * part.grains
            self._told += sign

    @property
    def microusd(self) -> int | None:
        """Return the sum, rounded once, and never up if it is partial; None if nothing was told."""
        half = 0 if self.is_partial else _GRAINS // 2
        return bounded((self._grains + half) // _GRAINS) if self._told else None

    @property
    def is_partial(self) -> bool:
        """Whether there is more than was told, though something was."""
        return bool(self._told and self._untold)


class ToldDollars:
    """Fold a run's reports. `parts` is in the order in which they were first heard of."""

    def __init__(self) -> None:
        self.parts: list[ToldPart] = []
        self.sum = ToldSum()
        # A driver, its call ids and its cumulative reports are of one attempt.
        self._place_of: dict[str, int] = {}
        self._of_model: dict[str, int] = {}
        self._untold_of: dict[str, set[int]] = {}
        self._rest_of: dict[bool, int] = {}

    def next_attempt(self) -> None:
        """Begin another attempt: call ids and cumulative sums start anew."""
        self._place_of.clear()
        self._of_model.clear()
        self._untold_of.clear()

    def apply(self, report: Usage) -> None:
        """Fold what *report* says of dollars; what cannot be was not told."""
        part = ToldPart(report.model, _grains_of(report.cost_usd))
        if report.scope == "total":
            self._apply_total(part)
        else:
            self._apply_call(part, report.call_id or "")

    def _apply_call(self, part: ToldPart, id: str) -> None:
        place = self._place_of.get(id)
        if place is None:
            place = self._append(part)
            if id and place is not None:
                self._place_of[id] = place
        elif part.grains is not None:
            self._set(place, part)

    def _apply_total(self, part: ToldPart) -> None:
        model, grains = part
        if grains is None:
            if not self._untold_of.get(model):
                self._append(part)
            return
        for place in self._untold_of.pop(model, ()):
            self._set(place, ToldPart(model, 0))
        before = self._of_model.get(model)
        if before is None or grains > before:
            self._append(ToldPart(model, grains - (before or 0)))

    def _append(self, part: ToldPart) -> int | None:
        """Add *part* and return its place; None if it has none of its own."""
        if len(self.parts) >= MOST_CALLS:
            self._add_to_rest(part)
            return None
        self.parts.append(part)
        self._count(len(self.parts) - 1, 1)
        return len(self.parts) - 1

    def _add_to_rest(self, part: ToldPart) -> None:
        place = self._rest_of.get(part.grains is None)
        if place is None:
            place = self._rest_of[part.grains is None] = len(self.parts)
            self.parts.append(ToldPart(_REST, part.grains))
        elif part.grains is not None:
            self.parts[place] = ToldPart(_REST, (self.parts[place].grains or 0) + part.grains)
        self.sum.add(part)
        if part.grains is not None and part.model in self._of_model:
            self._of_model[part.model] += part.grains

    def _set(self, place: int, part: ToldPart) -> None:
        self._count(place, -1)
        self.parts[place] = part
        self._count(place, 1)

    def _count(self, place: int, sign: int) -> None:
        part = self.parts[place]
        self.sum.add(part, sign)
        if part.grains is not None:
            self._of_model[part.model] = self._of_model.get(part.model, 0) + sign * part.grains
        elif sign > 0:
            self._untold_of.setdefault(part.model, set()).add(place)
        else:
            self._untold_of.get(part.model, set()).discard(place)


def _grains_of(usd: float | None) -> int | None:
    """Return *usd* in whole grains; None if nothing was told, or what cannot be."""
    if usd is None or not 0 <= usd <= MOST_USD:
        return None
    return round(usd * (MICRODOLLARS * _GRAINS))
