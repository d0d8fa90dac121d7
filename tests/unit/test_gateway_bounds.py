"""What a call costs at most: never less than anything that it can cost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from capsule_runtime.core.calls import CallUsage
from capsule_runtime.core.gateway.apis import Api
from capsule_runtime.core.gateway.asked import Asked, Feature, Lifetime
from capsule_runtime.core.gateway.bounds import (
    FLOOR,
    Model,
    Unbounded,
    Uncapped,
    Uncounted,
    Unpriced,
    Worst,
    cost_at_most,
    fitting_cap,
    floor_of,
    most_input,
    most_output,
    worst_case,
)
from capsule_runtime.core.gateway.media import Media, most_tokens
from capsule_runtime.core.gateway.reading import Request, read_request
from capsule_runtime.core.gateway.routes import Route, find_route
from capsule_runtime.core.gateway.settling import Told, charge_of, with_lifetimes
from capsule_runtime.core.prices import Price, Rate, Tier, cost_of_call

PRICE = Price(
    input=Rate(3_000_000),
    output=Rate(15_000_000),
    cache_read=Rate(300_000),
    cache_write=Rate(3_750_000),
    cache_write_1h=Rate(6_000_000),
)
MODEL = Model(PRICE)
CALL = Asked(Api.MESSAGES, "large", caps=(("max_tokens", 8_000),), text_bytes=1_000)


def messages_route() -> Route:
    route = find_route(Api.MESSAGES, "POST", "/v1/messages")
    assert isinstance(route, Route)
    return route


def test_a_plain_call_is_priced_at_the_dearest_that_its_tokens_can_be() -> None:
    worst = worst_case(CALL, MODEL)

    # 1 000 bytes and 2 048 tokens for the words around; all of it may be written to the cache.
    assert worst == Worst(3_048, 8_000, 3_048 * 15 // 4 + 8_000 * 15)
    hour = worst_case(replace(CALL, caches_for="hour"), MODEL)
    assert hour == Worst(3_048, 8_000, 3_048 * 6 + 8_000 * 15)


def test_a_feature_without_a_bound_is_refused_unless_it_is_allowed_by_name() -> None:
    feature = Feature("server tool", "tools web_search")
    call = replace(CALL, features=(feature,))

    assert worst_case(call, MODEL) == Unbounded(feature)
    assert isinstance(worst_case(call, MODEL, allowed=frozenset({"tools web_search"})), Worst)


@pytest.mark.parametrize(
    ("price", "lifetime", "part"),
    [
        (None, "none", "model large"),
        (replace(PRICE, input=None), "none", "input"),
        (replace(PRICE, output=None), "none", "output"),
        (replace(PRICE, cache_write=None), "minutes", "writing to the cache"),
        (replace(PRICE, cache_write_1h=None), "hour", "writing to the cache for an hour"),
    ],
)
def test_what_has_no_price_is_never_free(
    price: Price | None, lifetime: Lifetime, part: str
) -> None:
    assert worst_case(replace(CALL, caches_for=lifetime), Model(price)) == Unpriced(part)


def test_a_call_without_a_cap_has_no_bound_unless_the_model_has() -> None:
    call = replace(CALL, caps=())

    assert worst_case(call, MODEL) == Uncapped()
    found = worst_case(call, Model(PRICE, cap=500))
    assert isinstance(found, Worst)
    assert found.output_tokens == 500


def test_a_document_is_counted_by_its_provider_alone() -> None:
    call = replace(CALL, media=(Media("document", 10_000),))

    assert isinstance(worst_case(call, MODEL), Uncounted)
    found = worst_case(call, MODEL, counted=1_000)
    assert isinstance(found, Worst)
    assert found.input_tokens == 1_084


def test_the_lower_of_two_counts_holds() -> None:
    assert most_input(CALL, counted=100) == 166
    assert most_input(CALL, counted=1_000_000) == 3_048


def test_every_choice_and_a_budget_above_the_cap_count() -> None:
    assert most_output(replace(CALL, choices=3), 1_000) == 3_000
    assert most_output(replace(CALL, thinking_budget=500), 1_000) == 1_000
    assert most_output(replace(CALL, thinking_budget=2_000), 1_000) == 3_000
    assert most_output(CALL, 1) == 64
    assert most_output(CALL, 1_000, beside_cap=300) == 1_300


@pytest.mark.parametrize(
    ("more", "tokens"),
    [
        (replace(CALL, marks=100), 100),
        (replace(CALL, pieces=10), 320),
        (replace(CALL, described_tools=2), 2_048),
        (replace(CALL, media=(Media("image", 9),)), 6_000),
    ],
)
def test_what_a_provider_writes_around_all_counts(more: Asked, tokens: int) -> None:
    assert most_input(more) == 1_000 + 2_048 + tokens


def test_a_part_of_a_microdollar_counts_as_one() -> None:
    price = Price(Rate(1), Rate(0))

    assert cost_at_most(price, CALL, 1, 0) == 1


def test_a_tier_counts_from_its_first_token() -> None:
    price = Price(Rate(1_000_000, (Tier(100, 2_000_000),)), Rate(0))

    assert cost_at_most(price, CALL, 100, 0) == 100
    assert cost_at_most(price, CALL, 101, 0) == 202


def test_thoughts_that_are_encrypted_count_twice() -> None:
    more = most_input(replace(CALL, text_bytes=2_000, opaque_bytes=1_000))

    assert more == 2_000 + 1_000 + 2_048


@pytest.mark.parametrize(
    ("api", "model", "media", "tokens"),
    [
        (Api.MESSAGES, "m", Media("image", 9), 6_000),
        (Api.CHAT, "large-4o-mini", Media("image", 9), 48_169),
        (Api.CHAT, "m", Media("image", 9, 1_024, 1_024), 37 * 37 * 5 // 2 + 512),
        (Api.RESPONSES, "m", Media("image", 9), 215 * 215 * 5 // 2 + 512),
        (Api.RESPONSES, "m", Media("image", 9, 10**9, 10**9), 215 * 215 * 5 // 2 + 512),
        (Api.GENERATE, "m", Media("image", 9), 7_216),
        (Api.GENERATE, "m", Media("document", 9), None),
    ],
)
def test_an_image_is_what_is_published_at_most(
    api: Api, model: str, media: Media, tokens: int | None
) -> None:
    assert most_tokens(media, api, model) == tokens


MEASURED = [(256, 256, 77), (1_920, 1_080, 2_448), (3_840, 2_160, 9_792), (4_032, 3_024, 14_364)]
"""Pixels of images and the most tokens that anybody was charged for them."""


@pytest.mark.parametrize(("width", "height", "tokens"), MEASURED)
def test_an_image_is_never_less_than_was_measured(width: int, height: int, tokens: int) -> None:
    bound = most_tokens(Media("image", 9, width, height), Api.RESPONSES, "m")

    assert bound is not None
    assert bound >= tokens


def texts_in(value: Any) -> Iterator[str]:
    """Yield all texts of a body, also the names of its members."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for one in value:  # pyright: ignore[reportUnknownVariableType]  # any JSON
            yield from texts_in(one)
    elif isinstance(value, dict):
        for key, one in value.items():  # pyright: ignore[reportUnknownVariableType]  # any JSON
            yield from texts_in(key)
            yield from texts_in(one)


@given(st.lists(st.text(), min_size=1), st.dictionaries(st.text(), st.text()), st.booleans())
def test_no_tokenizer_makes_more_of_a_body_than_its_bound(
    words: list[str], schema: dict[str, str], ascii_only: bool
) -> None:
    """One token a byte of every text, which is the most there is, and one for every mark."""
    body = {
        "model": "large",
        "messages": [{"role": "user", "content": word} for word in words],
        "tools": [{"name": "f", "input_schema": schema}],
    }
    text = json.dumps(body, ensure_ascii=ascii_only)
    assume(ascii_only or not any(0xD800 <= ord(char) < 0xE000 for char in text))
    found = read_request(messages_route(), text.encode())
    assert isinstance(found, Request)
    bound = most_input(found.asked)

    told = sum(len(one.encode("utf-8", "surrogatepass")) for one in texts_in(body))
    marks = sum(text.count(mark) for mark in "{}[],:")
    assert isinstance(bound, int)
    assert bound >= told + marks + 8 * len(words)


RATES = st.builds(
    Rate,
    st.integers(0, 10**8),
    st.lists(st.builds(Tier, st.integers(0, 400_000), st.integers(0, 10**8)), max_size=2).map(
        lambda tiers: tuple(sorted(tiers, key=lambda tier: tier.above))
    ),
)
PRICES = st.builds(Price, RATES, RATES, RATES, RATES, RATES)
COUNTS = st.integers(0, 10**6)


@given(PRICES, COUNTS, COUNTS, COUNTS, COUNTS, COUNTS, st.booleans())
def test_no_call_costs_more_than_was_proven(
    price: Price, fresh: int, output: int, read: int, short: int, long: int, hides: bool
) -> None:
    usage = CallUsage(
        fresh, output, read, short + long, None if hides else long, model="acme:large"
    )
    call = replace(CALL, caches_for="hour")
    proven = cost_at_most(price, call, fresh + read + short + long, output)

    cost = cost_of_call(price, usage)
    assert isinstance(proven, int)
    assert cost.most_microusd is not None
    assert cost.most_microusd <= proven


@given(PRICES, COUNTS, COUNTS, COUNTS, COUNTS)
def test_no_call_is_charged_more_than_was_held_for_it(
    price: Price, fresh: int, output: int, read: int, written: int
) -> None:
    """The provider tells no lifetimes of what was written, and minutes are all that was asked."""
    call = replace(CALL, caches_for="minutes")
    tokens = fresh + read + written
    proven = cost_at_most(price, call, tokens, output)
    assert isinstance(proven, int)
    usage = CallUsage(fresh, output, read, written, model="acme:large")
    told = Told("ok", usage, is_final=True)
    charge = charge_of(with_lifetimes(told, "minutes"), price, Worst(tokens, output, proven))

    assert charge.microusd <= proven
    assert not charge.is_estimate


@given(PRICES, COUNTS, COUNTS, COUNTS, COUNTS)
def test_less_of_all_costs_no_more(
    price: Price, tokens: int, output: int, fewer: int, less: int
) -> None:
    proven = cost_at_most(price, CALL, tokens + fewer, output + less)

    cost = cost_at_most(price, CALL, tokens, output)
    assert isinstance(cost, int) and isinstance(proven, int)
    assert cost <= proven


@given(PRICES, COUNTS, COUNTS, COUNTS, st.none() | st.integers(1_024, 60_000))
def test_the_highest_cap_that_fits_is_found(
    price: Price, tokens: int, own: int, room: int, budget: int | None
) -> None:
    call = replace(CALL, caps=(("max_tokens", own),), thinking_budget=budget)
    cap = fitting_cap(call, Model(price), tokens, room)

    def cost(cap: int) -> int:
        found = cost_at_most(price, call, tokens, most_output(call, cap))
        assert isinstance(found, int)
        return found

    if cap is None:
        assert cost(min(own, floor_of(call))) > room
    else:
        assert min(own, floor_of(call)) <= cap <= own
        assert cost(cap) <= room
        assert cap == own or cost(cap + 1) > room


def test_a_cap_leaves_room_for_thoughts() -> None:
    assert floor_of(CALL) == FLOOR
    assert floor_of(replace(CALL, thinking_budget=10_000)) == 11_024


def test_an_ordinary_first_call_of_a_large_harness_fits_a_dollar() -> None:
    """80 KB of tools and words, 128 000 tokens of output asked for, at 5 and 25 dollars."""
    price = Price(Rate(5_000_000), Rate(25_000_000), Rate(500_000), Rate(6_250_000))
    call = replace(
        CALL, caps=(("max_tokens", 128_000),), text_bytes=80_000, marks=2_400, caches_for="minutes"
    )
    tokens = most_input(call)
    assert isinstance(tokens, int)

    cap = fitting_cap(call, Model(price), tokens, 1_000_000)
    assert cap is not None
    assert cap > FLOOR
