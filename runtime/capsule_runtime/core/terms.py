"""On what terms a run spends: whose ceilings hold, and whether anybody can hold them."""

from __future__ import annotations

from typing import Literal, assert_never

import msgspec
from msgspec import Struct

from capsule_runtime.core.ceilings import Ceiling, Ceilings, DayCeilings, Unheld
from capsule_runtime.core.ledger import METERED, Ledger, Spend
from capsule_runtime.core.prices import PriceTable
from capsule_runtime.errors import SpendError, UsageError

NO_CEILINGS = Ceilings()
_TOO_LATE = {
    Spend.AFTER_RUN: "usage is reported only when the run is over",
    Spend.UNMETERED: "usage is never reported",
}


class Terms(Struct, frozen=True):
    """What is settled about spending before a launch."""

    spend: Spend
    ceilings: Ceilings
    """The lower of the capsule's and the caller's."""
    day: DayCeilings
    ledger: Literal["driver", "gateway"] = "driver"
    """Where the account comes from."""
    is_told_at_end: bool = False
    """Whether even answers and tool calls are told only when the run is over."""

    @property
    def needs_prices(self) -> bool:
        """Whether something is bounded in dollars."""
        return self.ceilings.microusd is not None or self.day.microusd is not None

    def by_gateway(self) -> Terms:
        """Return the terms of a run whose only way to a model is the gateway."""
        spend = spend_word("none", gateway=True)
        return msgspec.structs.replace(self, ledger="gateway", spend=spend)

    def check(self, model: str | None, prices: PriceTable | None) -> None:
        """Refuse what cannot begin. A *model* that is not known yet is judged when it is used.

        Raises:
            SpendError: E-SPE-001, a ceiling is used up.
            UsageError: E-USE-040, usage is told too late for a ceiling to be held; E-USE-041,
                nobody knows what the model costs.
        """
        if (reached := Ledger(self.ceilings, prices).exhausted()) is not None:
            raise SpendError("E-SPE-001", reached.refusal, "Raise the ceiling.")
        self._check_counts()
        of_day = Ceilings(self.day.microusd, self.day.tokens)
        of_day = msgspec.structs.replace(of_day, on_unmetered=self.ceilings.on_unmetered)
        for ceilings, is_of_day in ((self.ceilings, False), (of_day, True)):
            unheld = refusal_at_launch(ceilings, self.spend, model, prices)
            if unheld is None:
                continue
            message = msgspec.structs.replace(unheld, is_of_day=is_of_day).refusal
            if self.spend in (Spend.AFTER_RUN, Spend.UNMETERED):
                hint = _OWN_LIMIT_HINT if self.is_told_at_end else _UNMETERED_HINT
                raise UsageError("E-USE-040", message, hint)
            raise UsageError("E-USE-041", message, _UNPRICED_HINT)

    def _check_counts(self) -> None:
        if not self.is_told_at_end or self.ceilings.on_unmetered == "allow":
            return
        for ceiling, limit in self.ceilings.limits():
            if ceiling not in METERED:
                why = "what it does is told only when the run is over"
                raise UsageError("E-USE-040", Unheld(ceiling, limit, why).refusal, _OWN_LIMIT_HINT)


_UNMETERED_HINT = "Bound turns or tool calls, or allow it with --on-unmetered allow."
_OWN_LIMIT_HINT = "Set a limit of the harness's own under [harness.config], or allow it with --on-unmetered allow."
_UNPRICED_HINT = (
    "Write the model as provider:id, give it a price of your own, or bound tokens instead."
)


def terms_of(
    of_capsule: Ceilings,
    of_caller: Ceilings,
    day: DayCeilings,
    usage: Literal["per-call", "cumulative", "final", "none"],
    *,
    is_told_at_end: bool = False,
) -> Terms:
    """Return the terms of a run with a driver that reports its *usage* so.

    The day's ceilings are the caller's too: no capsule can let them go.
    """
    ceilings = of_capsule.lowered_by(of_caller)
    if day and of_caller.on_unmetered == "refuse":
        ceilings = msgspec.structs.replace(ceilings, on_unmetered="refuse")
    return Terms(spend_word(usage), ceilings, day, is_told_at_end=is_told_at_end)


def spend_word(
    usage: Literal["per-call", "cumulative", "final", "none"], *, gateway: bool = False
) -> Spend:
    """Return when spending is known with a driver that reports its *usage* so.

    *gateway*: all model calls pass through a listener of ours.
    """
    if gateway:
        return Spend.BEFORE_CALL
    match usage:
        case "per-call" | "cumulative":
            return Spend.AFTER_CALL
        case "final":
            return Spend.AFTER_RUN
        case "none":
            return Spend.UNMETERED
        case _:
            assert_never(usage)


def refusal_at_launch(
    ceilings: Ceilings, spend: Spend, model: str | None, prices: PriceTable | None
) -> Unheld | None:
    """Return the ceiling that could not be held, so that the run must not start.

    A *model* that is not known yet is judged when it is first used.
    """
    if ceilings.on_unmetered == "allow":
        return None
    has_price = model is None or (prices is not None and prices.knows(model))
    for ceiling, limit in ceilings.limits():
        if ceiling in METERED and (why := _TOO_LATE.get(spend)):
            return Unheld(ceiling, limit, why)
        if ceiling is Ceiling.USD and not has_price:
            return Unheld(ceiling, limit, f"nobody knows the price of {model!r}")
    return None
