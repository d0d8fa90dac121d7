"""What one run spent, and whether that is too much. No clock: only what was reported counts.

Ceilings are looked at in the order of `Ceiling`: usd, tokens, turns, tool_calls. The first one that
stands in the way is the refusal and stays it, whatever is reported later.

usd and tokens are reached when all is spent: the next call could only go over. turns and tool_calls
are reached by one more than the ceiling: that many are allowed. Before a launch, any of them that
is used up stands in the way.

A usd ceiling counts the most that a call can have cost. Where there is no such bound, because a
price or a number is missing, the ceiling cannot be held, and unless that was allowed it refuses.

Where all calls of a run pass the gateway, its `Account` holds usd and tokens before they are spent,
and the ledger only counts turns and tool calls; what a driver reports is not entered then.

Beside its own ceilings a run may have a share of the day's: see `day_share`. The ledger tells when
the share is too small for another call; whether there is more to be had, others know.
"""

from __future__ import annotations

from enum import StrEnum
from typing import assert_never

from msgspec import Struct

from capsule_runtime.core.calls import CallUsage
from capsule_runtime.core.ceilings import (
    NO_DAY,
    Ceiling,
    Ceilings,
    DayReached,
    Reached,
    Refusal,
    Unheld,
)
from capsule_runtime.core.day_share import CALLS_HELD, Needs, Share
from capsule_runtime.core.gateway.reservations import Account, Amount
from capsule_runtime.core.money import FREE, UNKNOWN, Cost
from capsule_runtime.core.prices import Price, PriceTable, cost_of_call
from capsule_runtime.core.usage import UsageFold
from capsule_runtime.events import Usage

_CALLS_AT_ONCE = 64
"""How many calls may be under way; of one more, the oldest will not tell what is still missing."""
_NO_CEILINGS = Ceilings()
METERED = frozenset({Ceiling.USD, Ceiling.TOKENS})
_ALLOWED_IN_FULL = frozenset({Ceiling.TURNS, Ceiling.TOOL_CALLS})


class Spend(StrEnum):
    """When what a model call costs is known: the word of the launch report."""

    BEFORE_CALL = "before-call"
    AFTER_CALL = "after-call"
    AFTER_RUN = "after-run"
    UNMETERED = "unmetered"


class Settled(Struct, frozen=True, omit_defaults=True):
    """What a run spent, as its ceilings counted it: for the record.

    *prices* is the version of the table that *cost* comes from. What nobody knows is left out.
    *charged* is all that counted where the calls passed the gateway, with what was *estimated* and
    what stays *unsettled*, because nobody told how much it was.
    """

    steps: int
    turns: int
    tool_calls: int
    tokens: int | None = None
    cost: Cost | None = None
    prices: str | None = None
    charged: Amount | None = None
    estimated: Amount | None = None
    unsettled: Amount | None = None

    @property
    def counted(self) -> Amount:
        """Return what counts for the day."""
        if self.charged is not None:
            return self.charged
        return Amount(self.cost.charged_microusd if self.cost else 0, self.tokens or 0)


class Ledger:
    """Keep one run's account. *prices* may be left out when no ceiling is in dollars."""

    def __init__(
        self,
        ceilings: Ceilings = _NO_CEILINGS,
        prices: PriceTable | None = None,
        usage: UsageFold | None = None,
        account: Account | None = None,
    ) -> None:
        """*usage* is what a log says was used before; *account* is the gateway's, if it has one."""
        self.account = account
        if account is not None:
            ceilings = Ceilings(turns=ceilings.turns, tool_calls=ceilings.tool_calls)
        assert prices is not None or ceilings.microusd is None, "a usd ceiling without prices"
        self.usage = usage or UsageFold()
        self.refusal: Refusal | None = None
        self.share: Share | None = None
        """What the run holds of the day's ceilings; None where the day has none."""
        self._largest_call = (0, 0)
        self._limits = ceilings.limits()
        self._may_be_unmetered = ceilings.on_unmetered == "allow"
        self._table = prices
        self._prices: dict[str, Price | None] = {}
        self._costs: list[Cost] = []
        self._charged = self._inexact = 0
        self._turns = self._tool_calls = 0
        self._open: dict[int, CallUsage] = {}
        for place in range(len(self.usage.calls)):
            self._weigh(place)

    @property
    def is_bounded(self) -> bool:
        """Whether anything that is entered can be refused."""
        return bool(self._limits) or self.share is not None

    @property
    def needs(self) -> Needs:
        """Return what must be covered by the run's share of the day."""
        return Needs(self._charged, self.usage.tokens or 0, *self._largest_call)

    def lack(self, calls: int = CALLS_HELD) -> DayReached | None:
        """Return what keeps the share of the day from covering so many more *calls*, if it does."""
        return None if self.share is None else self.share.lack(self.needs, calls)

    def next_attempt(self) -> None:
        """Begin another attempt of the run."""
        self.usage.next_attempt()

    def used(self, report: Usage) -> None:
        """Enter what a model call used."""
        place = self.usage.apply(report)
        if place is None or not (self.is_bounded or self._table):
            return
        call = self._weigh(place)
        self._open.pop(place, None)
        if call.call_id and _missing(call):
            self._open[place] = call
            if len(self._open) > _CALLS_AT_ONCE:
                self._judge_open()
        if self.refusal is None:
            number = place + 1
            self.refusal = self._reached(_ALLOWED_IN_FULL, number) or self._unheld(number, call)

    def finish(self) -> None:
        """Judge the calls of which something is still missing: nothing more will be told of them."""
        while self._open:
            self._judge_open()

    def _judge_open(self) -> None:
        """Judge the oldest call of which something is still missing."""
        place = next(iter(self._open))
        call = self._open.pop(place)
        if self.refusal is None:
            self.refusal = self._unheld(place + 1, call, is_final=True)

    def counted(self, turns: int, tool_calls: int) -> None:
        """Enter how many turns and tool calls there were so far."""
        self._turns, self._tool_calls = turns, tool_calls
        if self._limits and self.refusal is None:
            self.refusal = self._reached(_ALLOWED_IN_FULL)

    def exhausted(self) -> Reached | None:
        """Return the first ceiling that has no room left. Ask before a launch."""
        return self._reached(frozenset())

    def settled(self) -> Settled:
        """Return the account, for the record."""
        return Settled(
            len(self.usage.calls),
            self._turns,
            self._tool_calls,
            self.usage.tokens,
            sum(self._costs, FREE) if self._costs else None,
            self._table.version if self._table and self._costs else None,
            *(self._of_account() if self.account else ()),
        )

    def _of_account(self) -> tuple[Amount, Amount | None, Amount | None]:
        """Return what was charged in all, and what of it nobody knows."""
        assert self.account is not None
        # Of what is still held nobody will tell any more.
        unsettled = self.account.unsettled + self.account.reserved
        estimated = self.account.estimated
        return self.account.taken, estimated or None, unsettled or None

    def _weigh(self, place: int) -> CallUsage:
        """Enter what the call at *place* costs, as far as there are prices."""
        call, cost = self.usage.calls[place], UNKNOWN
        if self._table is not None:
            cost = cost_of_call(self._price(self._table, call.model), call)
            self._enter(place, cost)
        microusd, tokens = self._largest_call
        self._largest_call = max(microusd, cost.charged_microusd), max(tokens, call.tokens or 0)
        return call

    def _price(self, table: PriceTable, model: str) -> Price | None:
        if model not in self._prices:
            self._prices[model] = table.find(model)
        return self._prices[model]

    def _enter(self, place: int, cost: Cost) -> None:
        if place == len(self._costs):
            self._costs.append(FREE)
        was, self._costs[place] = self._costs[place], cost
        self._charged += cost.charged_microusd - was.charged_microusd
        self._inexact += cost.incomplete - was.incomplete

    def _observed(self, ceiling: Ceiling) -> int:
        match ceiling:
            case Ceiling.USD:
                return self._charged
            case Ceiling.TOKENS:
                return self.usage.tokens or 0
            case Ceiling.TURNS:
                return self._turns
            case Ceiling.TOOL_CALLS:
                return self._tool_calls
            case _:
                assert_never(ceiling)

    def _reached(self, allowing: frozenset[Ceiling], call: int | None = None) -> Reached | None:
        """Return the first ceiling that is reached; those of *allowing* may be used in full."""
        for ceiling, limit in self._limits:
            if (observed := self._observed(ceiling)) >= limit + (ceiling in allowing):
                estimated = ceiling is Ceiling.USD and self._inexact > 0
                return Reached(ceiling, limit, observed, call, estimated)
        return None

    def _unheld(self, number: int, call: CallUsage, *, is_final: bool = False) -> Unheld | None:
        if self._may_be_unmetered:
            return None
        own = tuple((ceiling, limit, False) for ceiling, limit in self._limits)
        for ceiling, limit, is_of_day in (*own, *self._of_day()):
            if ceiling in METERED and (why := self._why_unheld(ceiling, number, call, is_final)):
                return Unheld(ceiling, limit, why, is_of_day)
        return None

    def _of_day(self) -> tuple[tuple[Ceiling, int, bool], ...]:
        day = self.share.ceilings if self.share else NO_DAY
        return tuple(
            (ceiling, limit, True)
            for ceiling, limit in ((Ceiling.USD, day.microusd), (Ceiling.TOKENS, day.tokens))
            if limit is not None
        )

    def _why_unheld(
        self, ceiling: Ceiling, number: int, call: CallUsage, is_final: bool
    ) -> str | None:
        missing = _missing(call)
        if ceiling is Ceiling.USD:
            if self._prices[call.model] is None:
                return f"nobody knows the price of {call.model!r}"
            if not missing and self._costs[number - 1].most_microusd is None:
                return f"model call {number} of {call.model!r} has a part without a price"
        # A later report of a call that has an id may still bring what is missing: see `finish`.
        if missing and (call.call_id is None or is_final):
            return f"model call {number} of {call.model!r} reported no {missing}"
        return None


def _missing(call: CallUsage) -> str | None:
    if call.input_tokens is None:
        return "input_tokens"
    return "output_tokens" if call.output_tokens is None else None
