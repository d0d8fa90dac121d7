"""The data of the `genai-prices` package as rows of ours. Importing this costs 150 ms.

The rules of that data are kept: the first model that fits is the one; cached input without a price
of its own costs what input costs; writes to the cache for an hour, without one, cost what writes
cost. Of prices that change with the hour of the day the dearest is taken. A model that is also
billed for what our events do not tell, such as requests, is left without a price: a part of its
price would pass for the whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from decimal import ROUND_CEILING, Decimal

from genai_prices import types
from genai_prices.data import providers

from capsule_runtime.core.model_names import Pattern
from capsule_runtime.core.prices import Price, Provider, Rate, Row, Tier

_MICRODOLLARS = 1_000_000
_UNTOLD = frozenset({"requests_kcount", "output_reasoning_mtok", "output_citation_mtok"})


def providers_on(on: date) -> tuple[Provider, ...]:
    """Return the price lists that hold on the day *on*."""
    return tuple(_provider(provider, on) for provider in providers)


def _provider(provider: types.Provider, on: date) -> Provider:
    return Provider(
        provider.id,
        tuple(Row(_pattern(m.match), _price(_dearest(m.prices, on))) for m in provider.models),
        _pattern(provider.provider_match) if provider.provider_match else None,
        tuple(provider.fallback_model_providers or ()),
    )


def _dearest(
    prices: types.ModelPrice | Sequence[types.ConditionalPrice], on: date
) -> types.ModelPrice:
    """Return the dearest of the prices that hold at some hour of the day *on*."""
    if isinstance(prices, types.ModelPrice):
        return prices
    held: list[types.ModelPrice] = []
    for price in reversed(prices):  # the last one whose condition is met holds
        condition = price.constraint
        if isinstance(condition, types.StartDateConstraint) and on < condition.start_date:
            continue
        held.append(price.prices)
        if not isinstance(condition, types.TimeOfDateConstraint):
            break
    return max(held or [prices[0].prices], key=_base_of_input)


def _base_of_input(price: types.ModelPrice) -> int:
    rate = _rate(price.input_mtok)
    return rate.base if rate else 0


def _price(price: types.ModelPrice) -> Price:
    if any(getattr(price, key) is not None for key in _UNTOLD):
        return Price()
    read, write, hour = price.cache_read_mtok, price.cache_write_mtok, price.cache_write_1h_mtok
    return Price(
        _rate(price.input_mtok),
        _rate(price.output_mtok),
        _rate(price.input_mtok if read is None else read),
        _rate(write),
        _rate(write if hour is None else hour),
    )


def _rate(dollars: Decimal | types.TieredPrices | None) -> Rate | None:
    if dollars is None:
        return None
    if isinstance(dollars, Decimal):
        return Rate(_micro(dollars))
    return Rate(
        _micro(dollars.base),
        tuple(Tier(tier.start, _micro(tier.price)) for tier in dollars.tiers),
    )


def _micro(dollars: Decimal) -> int:
    return int((dollars * _MICRODOLLARS).to_integral_value(ROUND_CEILING))


def _pattern(clause: types.MatchLogic) -> Pattern:
    match clause:
        case types.ClauseEquals(text):
            return Pattern("equals", text.lower())
        case types.ClauseStartsWith(text):
            return Pattern("starts", text.lower())
        case types.ClauseEndsWith(text):
            return Pattern("ends", text.lower())
        case types.ClauseContains(text):
            return Pattern("contains", text.lower())
        case types.ClauseRegex(text):
            return Pattern("regex", text)
        case types.ClauseOr(clauses):
            return Pattern("any", of=tuple(map(_pattern, clauses)))
        case types.ClauseAnd(clauses):
            return Pattern("all", of=tuple(map(_pattern, clauses)))
