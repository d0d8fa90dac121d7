"""What a model call costs: hand-computed sums, and that no cost is ever told too low."""

from __future__ import annotations

from fractions import Fraction

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capsule_runtime.core.calls import CallUsage
from capsule_runtime.core.model_names import Pattern, pattern_of, with_dashed_date
from capsule_runtime.core.money import FREE, UNKNOWN, Cost
from capsule_runtime.core.prices import (
    DollarsPerMillion,
    Price,
    PriceTable,
    Provider,
    Rate,
    Row,
    Tier,
    cost_of,
    cost_of_call,
    override,
)

MODEL = "acme:large"
LARGE = Price(
    input=Rate(3_000_000),
    output=Rate(15_000_000),
    cache_read=Rate(300_000),
    cache_write=Rate(3_750_000),
    cache_write_1h=Rate(6_000_000),
)
TIERED = Price(
    input=Rate(2_000_000, (Tier(200_000, 4_000_000),)),
    output=Rate(10_000_000, (Tier(200_000, 15_000_000),)),
    cache_read=Rate(200_000, (Tier(200_000, 400_000),)),
)
PLAIN = Price(input=Rate(1_000_000), output=Rate(2_000_000))


def call(
    input: int | None = 0,
    output: int | None = 0,
    read: int | None = None,
    write: int | None = None,
    hour: int | None = None,
) -> CallUsage:
    return CallUsage(input, output, read, write, hour, model=MODEL)


def lump(input: int | None = 0, output: int | None = 0, read: int | None = None) -> CallUsage:
    return CallUsage(input, output, read, model=MODEL, scope="total")


def exactly(microusd: int) -> Cost:
    return Cost(microusd, microusd)


# One call, by hand.


@pytest.mark.parametrize(
    ("used", "microusd"),
    [
        (call(1_000_000, 0), 3_000_000),
        (call(1000, 100), 3_000 + 1_500),
        (call(1000, 100, read=20_000), 3_000 + 1_500 + 6_000),
        (call(1000, 100, write=400, hour=0), 3_000 + 1_500 + 1_500),
        (call(1000, 100, write=400, hour=400), 3_000 + 1_500 + 2_400),
        (call(1000, 100, read=20_000, write=400, hour=300), 3_000 + 1_500 + 6_000 + 375 + 1_800),
        (call(1, 0, read=1), 4),
        (call(0, 0), 0),
    ],
    ids=[
        "a million",
        "input and output",
        "a read of the cache",
        "a write for minutes",
        "a write for an hour",
        "all at once",
        "3.3 is rounded up",
        "nothing",
    ],
)
def test_a_call_costs_the_sum_of_its_parts(used: CallUsage, microusd: int) -> None:
    assert cost_of_call(LARGE, used) == exactly(microusd)


def test_reasoning_is_inside_output_and_costs_nothing_more() -> None:
    used = CallUsage(1000, 100, reasoning_tokens=90, model=MODEL)

    assert cost_of_call(LARGE, used) == exactly(4_500)


@pytest.mark.parametrize(
    ("price", "used", "least"),
    [
        (LARGE, call(None, 100), 1_500),
        (LARGE, call(1000, None), 3_000),
        (PLAIN, call(1000, 100, read=5), 1_200),
        (PLAIN, call(1000, 100, write=5, hour=0), 1_200),
        (PLAIN, call(1000, 100, write=5, hour=5), 1_200),
        (PLAIN, call(1000, 100, write=5), 1_200),
        (Price(output=Rate(2_000_000)), call(1000, 100), 200),
        (LARGE, call(0, 0, write=None, hour=100), 600),
        (LARGE, call(0, 0, write=50, hour=100), 600),
        (Price(Rate(0), Rate(0), cache_write=Rate(4_000_000)), call(0, 0, write=100), 400),
    ],
    ids=[
        "input was not reported",
        "output was not reported",
        "reading has no price",
        "writing has no price",
        "writing for an hour has no price",
        "writing for who knows how long has no price",
        "input has no price",
        "writes for an hour without writes",
        "more writes for an hour than writes",
        "the hour may have been asked for and has no price",
    ],
)
def test_what_is_not_known_is_open_and_never_free(
    price: Price, used: CallUsage, least: int
) -> None:
    cost = cost_of_call(price, used)

    assert cost == Cost(least, None)
    assert cost.incomplete


def test_a_model_without_a_price_is_unknown() -> None:
    assert cost_of_call(None, call(1, 1)) == UNKNOWN
    assert cost_of_call(None, call(0, 0)) == UNKNOWN


def test_writes_that_may_be_for_an_hour_have_two_bounds() -> None:
    cost = cost_of_call(LARGE, call(1000, 100, write=400))

    assert cost == Cost(4_500 + 1_500, 4_500 + 2_400)
    assert cost.incomplete


def test_how_long_is_kept_does_not_matter_where_it_has_one_price() -> None:
    price = msgspec.structs.replace(LARGE, cache_write_1h=LARGE.cache_write)

    assert cost_of_call(price, call(0, 0, write=400)) == exactly(1_500)


# Tiers.


@pytest.mark.parametrize(
    ("used", "microusd"),
    [
        (call(200_000, 1000), 400_000 + 10_000),
        (call(200_001, 1000), 800_004 + 15_000),
        (call(100, 1000, read=200_000), 400 + 15_000 + 80_000),
        (call(100, 1000, read=199_900), 200 + 10_000 + 39_980),
    ],
    ids=["at the step", "beyond it: all tokens", "the cache counts", "just not"],
)
def test_the_whole_prompt_chooses_the_tier_of_all_tokens(used: CallUsage, microusd: int) -> None:
    assert cost_of_call(TIERED, used) == exactly(microusd)


def test_the_last_tier_that_is_reached_holds() -> None:
    price = Price(Rate(1_000_000, (Tier(10, 2_000_000), Tier(20, 3_000_000))), Rate(0))

    costs = [cost_of_call(price, call(tokens)).least_microusd for tokens in (10, 20, 21)]

    assert costs == [10, 40, 63]


def test_a_cumulative_report_is_priced_exactly_where_no_call_in_it_can_have_reached_a_tier() -> (
    None
):
    assert cost_of_call(TIERED, lump(200_000, 1000)) == exactly(410_000)
    assert cost_of_call(PLAIN, lump(10**9, 10**6)) == exactly(1_002_000_000)


def test_a_cumulative_report_beyond_a_tier_has_two_bounds() -> None:
    assert cost_of_call(TIERED, lump(300_000, 1000)) == Cost(610_000, 1_215_000)


def test_without_the_prompts_size_the_tier_is_open() -> None:
    cheaper = Price(Rate(0), Rate(2_000_000, (Tier(10, 1_000_000),)), Rate(0))

    assert cost_of_call(TIERED, call(None, 1000)) == Cost(10_000, None)
    assert cost_of_call(cheaper, call(None, 1000, read=5)) == Cost(1_000, None)


# What holds for every call.


def rate(base: int, tiers: dict[int, int]) -> Rate:
    return Rate(base, tuple(Tier(above, tiers[above]) for above in sorted(tiers)))


def whole_call(input: int, output: int, read: int, write: int, hour: int) -> CallUsage:
    return call(input, output, read, write, min(hour, write))


money = st.integers(0, 5_000_000)
rates = st.builds(rate, money, st.dictionaries(st.integers(0, 60), money, max_size=2))


@st.composite
def prices(draw: st.DrawFn) -> Price:
    """Draw a price in which an hour costs no less than minutes, as everywhere."""
    price = Price(*(draw(st.none() | rates) for _ in range(4)))
    if price.cache_write is None:
        return price
    write, more = price.cache_write, draw(st.integers(0, 10**6))
    hour = Rate(write.base + more, tuple(Tier(t.above, t.rate + more) for t in write.tiers))
    return msgspec.structs.replace(price, cache_write_1h=draw(st.sampled_from([hour, None])))


tokens = st.integers(0, 50)
true_calls = st.builds(whole_call, tokens, tokens, tokens, tokens, tokens)


def true_cost(price: Price, used: CallUsage) -> Fraction | None:
    """Return what *used*, of which all is known, costs to the last fraction."""
    total = Fraction(0)
    short = (used.cache_write_tokens or 0) - (used.cache_write_1h_tokens or 0)
    for count, rate in (
        (used.input_tokens, price.input),
        (used.output_tokens, price.output),
        (used.cache_read_tokens, price.cache_read),
        (short, price.cache_write),
        (used.cache_write_1h_tokens, price.cache_write_1h),
    ):
        if count and rate is None:
            return None
        if count and rate:
            reached = [t.rate for t in rate.tiers if (used.prompt_tokens or 0) > t.above]
            total += Fraction(count * [rate.base, *reached][-1], 1_000_000)
    return total


@given(prices(), true_calls)
def test_a_call_of_which_all_is_known_costs_what_it_costs(price: Price, used: CallUsage) -> None:
    true, cost = true_cost(price, used), cost_of_call(price, used)

    assert cost.incomplete == (true is None)
    if true is not None:
        assert true <= cost.least_microusd < true + 1


@given(
    prices(),
    true_calls,
    st.sets(st.sampled_from(["input_tokens", "output_tokens", "cache_write_1h_tokens"])),
)
def test_what_is_told_bounds_what_is_true(price: Price, used: CallUsage, hidden: set[str]) -> None:
    true = true_cost(price, used)
    told = msgspec.structs.replace(used, **dict.fromkeys(hidden))

    cost = cost_of_call(price, told)

    if true is not None:
        assert cost.least_microusd < true + 1
    if cost.most_microusd is not None:
        assert true is None or true <= cost.most_microusd
    if not cost.incomplete:
        assert true is None or true <= cost.least_microusd


@given(prices(), st.lists(true_calls, min_size=1, max_size=4))
def test_a_cumulative_report_bounds_the_calls_in_it(price: Price, used: list[CallUsage]) -> None:
    def of(name: str) -> int:
        return sum(getattr(one, name) for one in used)

    told = CallUsage(*map(of, CallUsage.__struct_fields__[:5]), model=MODEL, scope="total")
    trues = [true_cost(price, one) for one in used]

    cost = cost_of_call(price, told)

    if None not in trues:
        true = sum((true for true in trues if true), Fraction(0))
        assert cost.least_microusd < true + 1
        assert cost.most_microusd is not None
        assert true <= cost.most_microusd


@given(prices(), true_calls)
def test_a_complete_cost_is_not_incomplete_by_rounding(price: Price, used: CallUsage) -> None:
    cost = cost_of_call(price, used)

    assert cost.most_microusd in (None, cost.least_microusd)


# Many calls.

TABLE = PriceTable(
    "prices of a test",
    (
        Provider("acme", (Row(Pattern("starts", "large"), LARGE),)),
        Provider(
            "resale",
            (Row(Pattern("contains", "large-2"), TIERED), Row(Pattern("equals", "mini"), Price())),
            pattern=Pattern("contains", "resale"),
            fallbacks=("nobody", "acme"),
        ),
        Provider("dated", (Row(Pattern("equals", "m-2025-12-11"), PLAIN),)),
    ),
)


def test_each_call_is_priced_at_its_own_models_price() -> None:
    calls = [CallUsage(1000, 0, model="acme:large"), CallUsage(1000, 0, model="resale:large-2")]

    assert cost_of(calls, TABLE) == exactly(3_000 + 2_000)


def test_one_call_without_a_price_makes_the_sum_incomplete_and_not_lower() -> None:
    calls = [CallUsage(1000, 0, model="acme:large"), CallUsage(1000, 0, model="acme:small")]

    assert cost_of(calls, TABLE) == Cost(3_000, None)


def test_no_calls_have_no_cost() -> None:
    assert cost_of([], TABLE) is None


def test_calls_that_used_nothing_cost_nothing() -> None:
    assert cost_of([CallUsage(0, 0, model="acme:large")], TABLE) == FREE


# Which price.


@pytest.mark.parametrize(
    ("model", "price"),
    [
        ("acme:large", LARGE),
        ("acme:large-20250101", LARGE),
        ("ACME:Large", LARGE),
        ("acme:small", None),
        ("acme:", None),
        ("acme", None),
        ("large", None),
        ("", None),
        ("nobody:large", None),
        ("resale:very-large-2", TIERED),
        ("resale:large", LARGE),
        ("our-resale-eu:large-2", TIERED),
        ("resale:mini", None),
        ("dated:m-20251211", PLAIN),
        ("dated:m-20251399", None),
    ],
)
def test_a_model_has_the_price_of_the_first_row_that_fits(model: str, price: Price | None) -> None:
    assert TABLE.find(model) == price


def test_the_callers_price_goes_before_all_else() -> None:
    own = override("acme:large", DollarsPerMillion(input="1", output=2.5, cache_read="0.1"))
    table = msgspec.structs.replace(TABLE, overrides=(own,))

    assert table.find("Acme:LARGE") == Price(Rate(1_000_000), Rate(2_500_000), Rate(100_000))
    assert table.find("acme:large-2") == LARGE


def test_the_callers_price_may_be_for_all_of_a_provider() -> None:
    own = override("Local:*", DollarsPerMillion(input=0, output=0))
    table = msgspec.structs.replace(TABLE, overrides=(own,))

    assert cost_of([CallUsage(10, 10, model="local:anything:8b")], table) == FREE
    assert cost_of([CallUsage(10, 10, 10, model="local:anything")], table) == UNKNOWN


def test_an_override_that_is_no_sum_of_dollars_is_refused() -> None:
    with pytest.raises(ValueError, match="'-3' is negative"):
        override(MODEL, DollarsPerMillion(input="-3", output="1"))


def test_a_table_comes_back_from_json_as_it_was() -> None:
    assert msgspec.json.decode(msgspec.json.encode(TABLE), type=PriceTable) == TABLE


# Names.


@pytest.mark.parametrize(
    ("pattern", "fits", "does_not"),
    [
        (Pattern("equals", "a-b"), "a-b", "a-bc"),
        (Pattern("starts", "a-"), "a-b", "b-a-"),
        (Pattern("ends", "-b"), "a-b", "-ba"),
        (Pattern("contains", "x"), "axb", "ab"),
        (Pattern("regex", r"^a\d$"), "a1", "ab"),
        (Pattern("any", of=(Pattern("equals", "a"), Pattern("equals", "b"))), "b", "c"),
        (Pattern("all", of=(Pattern("starts", "a"), Pattern("ends", "b"))), "a-b", "a"),
        (pattern_of("Acme:Large"), "acme:large", "acme:large-2"),
        (pattern_of("Acme:*"), "acme:large", "acm"),
    ],
    ids=lambda value: value.kind if isinstance(value, Pattern) else "",
)
def test_a_pattern_fits(pattern: Pattern, fits: str, does_not: str) -> None:
    assert pattern.fits(fits)
    assert not pattern.fits(does_not)


def test_a_compact_date_is_dashed() -> None:
    assert with_dashed_date("m-5.2-20251211-x") == "m-5.2-2025-12-11-x"
    assert with_dashed_date("m-20251311") == "m-20251311"
