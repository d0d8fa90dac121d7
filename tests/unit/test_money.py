"""Money in whole micro-dollars."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capsule_runtime.core.money import FREE, UNKNOWN, Cost, parse_usd, show_cost, show_usd


def cost(least: int, more: int | None) -> Cost:
    return Cost(least, None if more is None else least + more)


costs = st.builds(cost, st.integers(0, 10**9), st.none() | st.integers(0, 10**6))


@pytest.mark.parametrize(
    ("value", "microusd"),
    [
        ("1.50", 1_500_000),
        ("1.5", 1_500_000),
        ("0", 0),
        ("007", 7_000_000),
        ("0.000001", 1),
        ("1.500000000", 1_500_000),
        ("999999999.999999", 999_999_999_999_999),
        (0, 0),
        (3, 3_000_000),
        (1.5, 1_500_000),
        (0.1, 100_000),
        (0.29, 290_000),
        (1.005, 1_005_000),
        (0.00005, 50),
        (2.5e-05, 25),
        (1e-06, 1),
        (0.0, 0),
        (100000.0, 100_000_000_000),
    ],
)
def test_dollars_are_read(value: str | int | float, microusd: int) -> None:
    assert parse_usd(value) == microusd


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("-1", "is negative"),
        (-1, "is negative"),
        (-0.5, "is negative"),
        (float("nan"), "is not a number of dollars"),
        (float("inf"), "is not a number of dollars"),
        (float("-inf"), "is not a number of dollars"),
        ("NaN", "is not a number of dollars"),
        ("", "is not a number of dollars"),
        ("1,50", "is not a number of dollars"),
        ("$1", "is not a number of dollars"),
        ("+1", "is not a number of dollars"),
        (" 1", "is not a number of dollars"),
        ("1\n", "is not a number of dollars"),
        ("1.", "is not a number of dollars"),
        (".5", "is not a number of dollars"),
        ("1e3", "is not a number of dollars"),
        ("1_000", "is not a number of dollars"),
        ("\uff11", "is not a number of dollars"),
        (True, "is not a number of dollars"),
        ("1000000000", "below 1000000000"),
        (10**400, "below 1000000000"),
        (1e16, "below 1000000000"),
        ("0.0000001", "has more than 6 decimals"),
        (1e-07, "has more than 6 decimals"),
        (1.5e-300, "has more than 6 decimals"),
        (0.1 + 0.2, "has more than 6 decimals"),
    ],
)
def test_what_is_no_sum_of_dollars_is_refused_by_name(
    value: str | int | float, problem: str
) -> None:
    with pytest.raises(ValueError, match=problem) as caught:
        parse_usd(value)

    assert repr(value) in str(caught.value)


@given(st.integers(0, 10**15 - 1))
def test_what_is_shown_reads_back_exactly(microusd: int) -> None:
    assert parse_usd(show_usd(microusd).removeprefix("$")) == microusd


@given(st.integers(0, 10**12))
def test_a_float_is_the_decimal_that_it_is_written_as(microusd: int) -> None:
    assert parse_usd(microusd / 1_000_000) == microusd


@pytest.mark.parametrize(
    ("microusd", "shown"),
    [
        (0, "$0.00"),
        (1_500_000, "$1.50"),
        (412, "$0.000412"),
        (120_500, "$0.1205"),
        (1, "$0.000001"),
    ],
)
def test_dollars_are_shown_exactly(microusd: int, shown: str) -> None:
    assert show_usd(microusd) == shown


@pytest.mark.parametrize(
    ("cost", "shown"),
    [
        (None, "—"),
        (UNKNOWN, "—"),
        (Cost(0, 5), "—"),
        (FREE, "$0.00"),
        (Cost(120_000, 120_000), "$0.12"),
        (Cost(125_000, 125_000), "$0.13"),
        (Cost(999_999, 999_999), "$1.00"),
        (Cost(400, 400), "$0.0004"),
        (Cost(9_999, 9_999), "$0.009999"),
        (Cost(120_000, None), "≥ $0.12"),
        (Cost(129_999, None), "≥ $0.12"),
        (Cost(129_999, 140_000), "≥ $0.12"),
        (Cost(400, None), "≥ $0.0004"),
    ],
)
def test_a_cost_is_shown_as_far_as_it_is_known(cost: Cost | None, shown: str) -> None:
    assert show_cost(cost) == shown


@given(costs)
def test_what_was_spent_is_never_shown_as_nothing(cost: Cost) -> None:
    assert (show_cost(cost) == "$0.00") == (cost == FREE)


@given(costs, costs, costs)
def test_costs_add_up_in_any_order(a: Cost, b: Cost, c: Cost) -> None:
    assert a + b == b + a
    assert (a + b) + c == a + (b + c)
    assert a + FREE == a


@given(costs, costs)
def test_a_sum_is_complete_if_both_parts_are(a: Cost, b: Cost) -> None:
    assert (a + b).incomplete == (a.incomplete or b.incomplete)
    assert (a + b).charged_microusd >= a.least_microusd + b.least_microusd


def test_a_ceiling_counts_the_most_that_a_cost_can_be() -> None:
    assert Cost(100, 160).charged_microusd == 160
    assert Cost(100, None).charged_microusd == 100
