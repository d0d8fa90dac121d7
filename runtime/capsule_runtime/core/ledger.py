"""What one run spent, and whether that is too much. No clock: only what was reported counts.

Ceilings are looked at in the order of `Ceiling`: usd, tokens, turns, tool_calls. The first one that
stands in the way is the refusal and stays it, whatever is reported later.

usd and tokens are reached when all is spent: the next call could only go over. turns and tool_calls
are reached by one more than the ceiling: that many are allowed. Before a launch any of them that is
used up stands in the way.

A usd ceiling counts the most that a call can have cost. Where there is no such bound, because a
price or a number is missing, the ceiling cannot be held; a run that did not allow that is refused.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal, assert_never

from msgspec import Struct

from capsule_runtime.core.money import Cost, show_usd
from capsule_runtime.core.prices import Price, PriceTable, cost_of_call
from capsule_runtime.core.usage import CallUsage, UsageFold
from capsule_runtime.events import Usage


class Ceiling(StrEnum):
    """What can be bounded, in the order in which it is looked at."""

    USD = "usd"
    TOKENS = "tokens"
    TURNS = "turns"
    TOOL_CALLS = "tool_calls"


class Ceilings(Struct, frozen=True, omit_defaults=True):
    """What a run may spend. None is no ceiling.

    *on_unmetered* says what becomes of a ceiling on usd or tokens that nobody can hold.
    """

    microusd: int | None = None
    tokens: int | None = None
    turns: int | None = None
    tool_calls: int | None = None
    on_unmetered: Literal["refuse", "allow"] = "refuse"

    def limit(self, ceiling: Ceiling) -> int | None:
        """Return the limit of *ceiling*; dollars in micro-dollars."""
        match ceiling:
            case Ceiling.USD:
                return self.microusd
            case Ceiling.TOKENS:
                return self.tokens
            case Ceiling.TURNS:
                return self.turns
            case Ceiling.TOOL_CALLS:
                return self.tool_calls
            case _:
                assert_never(ceiling)


class Reached(Struct, frozen=True, omit_defaults=True, tag_field="refused", tag="reached"):
    """A ceiling was reached. *limit* and *observed* are micro-dollars for usd.

    *call* is the number, from 1, of the model call that did it. With *estimated* the sum is not
    exactly known.
    """

    ceiling: Ceiling
    limit: int
    observed: int
    call: int | None = None
    estimated: bool = False

    @property
    def refusal(self) -> str:
        """Return the refusal for people."""
        limit, observed = _shown(self.ceiling, self.limit), _shown(self.ceiling, self.observed)
        about = "about " if self.estimated else ""
        by = f", with model call {self.call}" if self.call else ""
        return f"the {self.ceiling} ceiling of {limit} is reached: {about}{observed} observed{by}"


class Unheld(Struct, frozen=True, tag_field="refused", tag="unheld"):
    """A ceiling that nobody can hold, and *why*."""

    ceiling: Ceiling
    limit: int
    why: str

    @property
    def refusal(self) -> str:
        """Return the refusal for people."""
        limit = _shown(self.ceiling, self.limit)
        return f"the {self.ceiling} ceiling of {limit} cannot be held: {self.why}"


Refusal = Reached | Unheld
"""Why a run may not spend more."""


class Settled(Struct, frozen=True, omit_defaults=True):
    """What a run spent, as its ceilings counted it: for the record.

    *prices* is the version of the price table that *cost* comes from. What nobody knows is left out.
    """

    steps: int
    turns: int
    tool_calls: int
    tokens: int | None = None
    cost: Cost | None = None
    prices: str | None = None


class Ledger:
    """Keep one run's account. *prices* may be left out if no ceiling is in dollars."""

    def __init__(self, ceilings: Ceilings, prices: PriceTable | None = None) -> None:
        assert prices is not None or ceilings.microusd is None, "a usd ceiling without prices"
        self.usage = UsageFold()
        self.refusal: Refusal | None = None
        self._ceilings = ceilings
        self._table = prices
        self._prices: dict[str, Price | None] = {}
        self._costs: list[Cost] = []
        self._charged = self._unsure = self._turns = self._tool_calls = 0

    def next_attempt(self) -> None:
        """Begin another attempt of the run."""
        self.usage.next_attempt()

    def used(self, report: Usage) -> None:
        """Enter what a model call used."""
        if (place := self.usage.apply(report)) is None:
            return
        call = self.usage.calls[place]
        if self._table is not None:
            self._enter(place, self._cost(self._table, call))
        if self.refusal is None:
            self.refusal = self._reached(place + 1) or self._unheld(place + 1, call)

    def counted(self, turns: int, tool_calls: int) -> None:
        """Enter how many turns and tool calls there were so far."""
        self._turns, self._tool_calls = turns, tool_calls
        if self.refusal is None:
            self.refusal = self._reached(None)

    def exhausted(self) -> Reached | None:
        """Return the first ceiling that leaves room for nothing more, to be asked before a launch."""
        return self._first(lambda ceiling, limit: self._observed(ceiling) >= limit, None)

    def settled(self) -> Settled:
        """Return the account, for the record."""
        return Settled(
            len(self.usage.calls),
            self._turns,
            self._tool_calls,
            self.usage.tokens,
            sum(self._costs[1:], self._costs[0]) if self._costs else None,
            self._table.version if self._table and self._costs else None,
        )
