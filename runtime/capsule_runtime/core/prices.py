"""What a model call costs, by a table of prices that is handed in.

Prices are micro-dollars per million tokens, which is one and the same number as dollars per
million tokens with six decimals. A cost is rounded up to a whole micro-dollar, call by call.

What has no price is never taken to be free: a model that is not in the table, a part that has no
price, a number that was not reported leave the most that a call can cost open. Where the price is
one of several (writes to the cache that may be for an hour, a cumulative report that may be many
calls of different tiers), the least and the most bound it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, NamedTuple

from msgspec import Meta, Struct

from capsule_runtime.core.calls import CallUsage
from capsule_runtime.core.model_names import Pattern, pattern_of, with_dashed_date
from capsule_runtime.core.money import FREE, UNKNOWN, Cost, bounded, parse_usd

_MILLION = 1_000_000
_LONGEST_NAME = 256
"""Of a model. A harness may say anything, and a price list is searched for it."""


Microdollars = Annotated[int, Meta(ge=0)]


class Tier(Struct, frozen=True, gc=False):
    """The rate of all tokens of a call whose prompt is longer than *above* tokens."""

    above: int
    rate: Microdollars


class Rate(Struct, frozen=True, omit_defaults=True):
    """Micro-dollars per million tokens. *tiers* ascend; the last one that is reached holds."""

    base: Microdollars
    tiers: tuple[Tier, ...] = ()


class Price(Struct, frozen=True, omit_defaults=True):
    """What the tokens of a model cost. None has no price."""

    input: Rate | None = None
    output: Rate | None = None
    cache_read: Rate | None = None
    cache_write: Rate | None = None
    """Of writes for the usual few minutes."""
    cache_write_1h: Rate | None = None


_NO_PRICE = Price()


class Row(Struct, frozen=True):
    """The price of the models that *pattern* fits."""

    pattern: Pattern
    price: Price


class Provider(Struct, frozen=True, omit_defaults=True):
    """The price list of one provider. The first row that fits a model holds.

    *pattern* fits other names of the provider; *fallbacks* are providers whose models it sells too.
    """

    id: str
    rows: tuple[Row, ...]
    pattern: Pattern | None = None
    fallbacks: tuple[str, ...] = ()


class PriceTable(Struct, frozen=True, omit_defaults=True):
    """All prices that are known. *version* names exactly these; it is recorded with every sum.

    *overrides* are the caller's, for whole names `provider:id`; they go before all else.
    """

    version: str
    providers: tuple[Provider, ...] = ()
    overrides: tuple[Row, ...] = ()

    def find(self, model: str) -> Price | None:
        """Return the price of *model*, written `provider:id`; None if nobody knows it."""
        if len(model) > _LONGEST_NAME:
            return None
        whole = model.lower()
        if own := _first_fit(self.overrides, whole):
            return own
        provider_name, _, name = whole.partition(":")
        provider = self._provider(provider_name)
        if provider is None or not name:
            return None
        found = self._sold_by(provider, name) or self._sold_by(provider, with_dashed_date(name))
        return None if found == _NO_PRICE else found

    def knows(self, model: str) -> bool:
        """Whether somebody prices *model*, which may leave its provider out."""
        if ":" in model or len(model) > _LONGEST_NAME:
            return self.find(model) is not None
        named = (self.find(f"{provider.id}:{model}") for provider in self.providers)
        own = (row.pattern for row in self.overrides)
        return any(named) or any(pattern.text.endswith(f":{model.lower()}") for pattern in own)

    def _provider(self, name: str) -> Provider | None:
        named = (p for p in self.providers if p.id == name)
        alike = (p for p in self.providers if p.pattern and p.pattern.fits(name))
        return next(named, None) or next(alike, None)

    def _sold_by(self, provider: Provider, name: str) -> Price | None:
        others = {p.id: p for p in self.providers if p.id in provider.fallbacks}
        sellers = [provider, *(others[id] for id in provider.fallbacks if id in others)]
        found = (_first_fit(seller.rows, name) for seller in sellers)
        return next((price for price in found if price), None)


class DollarsPerMillion(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A caller's own price of a model, in dollars per million tokens.

    What is left out has no price; a model that is free says 0.
    """

    input: str | int | float
    output: str | int | float
    cache_read: str | int | float | None = None
    cache_write: str | int | float | None = None
    cache_write_1h: str | int | float | None = None


def override(model: str, dollars: DollarsPerMillion) -> Row:
    """Return the row that prices *model* (`provider:id`, or `provider:*` for many) at *dollars*.

    Raises:
        ValueError: a number is no number of dollars.
    """
    price = Price(
        Rate(parse_usd(dollars.input)),
        Rate(parse_usd(dollars.output)),
        _rate(dollars.cache_read),
        _rate(dollars.cache_write),
        _rate(dollars.cache_write_1h),
    )
    return Row(pattern_of(model), price)


def cost_of_call(price: Price | None, call: CallUsage) -> Cost:
    """Return what *call* costs at *price*."""
    if price is None:
        return UNKNOWN
    parts = (
        _part(call, call.input_tokens, price.input),
        _part(call, call.output_tokens, price.output),
        _part(call, call.cache_read_tokens or 0, price.cache_read),
        *_writes(call, price),
    )
    most = [part.most for part in parts if part.most is not None]
    return Cost(
        _rounded_up(sum(part.least for part in parts)),
        _rounded_up(sum(most)) if len(most) == len(parts) else None,
    )


def cost_of(calls: Iterable[CallUsage], table: PriceTable) -> Cost | None:
    """Return what *calls* cost, each at its own model's price; None if there are none."""
    prices: dict[str, Price | None] = {}
    cost: Cost | None = None
    for call in calls:
        if call.model not in prices:
            prices[call.model] = table.find(call.model)
        cost = (cost or FREE) + cost_of_call(prices[call.model], call)
    return cost


class _Span(NamedTuple):
    """A product of tokens and rate: at least, and at most where that is known."""

    least: int
    most: int | None


_NOTHING = _Span(0, 0)
_OPEN = _Span(0, None)


def _part(call: CallUsage, tokens: int | None, rate: Rate | None) -> _Span:
    if tokens == 0:
        return _NOTHING
    if tokens is None or rate is None:
        return _OPEN
    rates = _rates_within_reach(rate, call)
    return _Span(tokens * min(rates), tokens * max(rates))


def _rates_within_reach(rate: Rate, call: CallUsage) -> Sequence[int]:
    """Return the one rate that holds for *call*, or all that may if its tier is not known."""
    if not rate.tiers:
        return (rate.base,)
    prompt = None if call.input_tokens is None else call.prompt_tokens
    reached = [tier.rate for tier in rate.tiers if prompt is None or prompt > tier.above]
    rates = [rate.base, *reached]
    # A cumulative report may be many calls, each of them shorter than all together.
    return rates if prompt is None or call.scope == "total" else rates[-1:]


def _writes(call: CallUsage, price: Price) -> Sequence[_Span]:
    """Return the parts of what was written to the cache, for minutes and for an hour."""
    written, for_hour = call.cache_write_tokens, call.cache_write_1h_tokens
    if for_hour is None:
        short = _part(call, written or 0, price.cache_write)
        long = _part(call, written or 0, price.cache_write_1h)
        return (_either(short, long),)
    parts = (
        _part(call, max(0, (written or 0) - for_hour), price.cache_write),
        _part(call, for_hour, price.cache_write_1h),
    )
    # The hour's writes are part of all writes; numbers that deny it do not tell all.
    is_sound = for_hour <= (written or 0)
    return parts if is_sound else (*parts, _OPEN)


def _either(short: _Span, long: _Span) -> _Span:
    if short.most is None or long.most is None:
        return _Span(short.least, None)  # keeping a thing for longer never costs less
    return _Span(min(short.least, long.least), max(short.most, long.most))


def _first_fit(rows: Iterable[Row], name: str) -> Price | None:
    return next((row.price for row in rows if row.pattern.fits(name)), None)


def _rate(dollars: str | int | float | None) -> Rate | None:
    return None if dollars is None else Rate(parse_usd(dollars))


def _rounded_up(product: int) -> int:
    return bounded(-(-product // _MILLION))
