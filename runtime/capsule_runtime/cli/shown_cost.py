"""What calls cost, for people and programs to read."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from capsule_runtime.core.calls import CallUsage
from capsule_runtime.core.money import show_cost
from capsule_runtime.core.prices import PriceTable, cost_of


class ShownCost(Struct, frozen=True):
    """What the calls cost by today's prices: at least, and at most where that is known."""

    least_microusd: int
    most_microusd: int | None
    shown: str


def shown_cost(calls: Iterable[CallUsage], prices: PriceTable) -> ShownCost | None:
    """Return what *calls* cost at *prices*; None if there are none."""
    if (cost := cost_of(calls, prices)) is None:
        return None
    return ShownCost(cost.least_microusd, cost.most_microusd, show_cost(cost))
