"""What a harness says that its calls cost."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capsule_runtime import Usage
from capsule_runtime.core.told_dollars import ToldDollars, ToldSum
from capsule_runtime.core.usage import MOST_CALLS

MODEL = "mock:model-1"


def told(reports: Sequence[Usage]) -> int | None:
    dollars = ToldDollars()
    for report in reports:
        dollars.apply(report)
    return dollars.sum.microusd


def is_partial(*reports: Usage) -> bool:
    dollars = ToldDollars()
    for report in reports:
        dollars.apply(report)
    return dollars.sum.is_partial


def call(usd: float | None, id: str | None = None, model: str = MODEL) -> Usage:
    return Usage(model, cost_usd=usd, call_id=id)


def total(usd: float | None, model: str = MODEL) -> Usage:
    return Usage(model, cost_usd=usd, scope="total")


def test_nothing_told_is_not_zero() -> None:
    assert told([]) is None
    assert told([call(None)]) is None
    assert told([call(0.0)]) == 0


def test_calls_are_added_up_and_one_that_is_told_again_is_replaced() -> None:
    assert told([call(0.1, "a"), call(0.2, "b"), call(0.15, "a")]) == 350_000
    assert told([call(0.1), call(0.1)]) == 200_000


def test_of_a_total_only_what_is_beyond_the_rest_is_new() -> None:
    assert told([call(0.1, "a"), total(0.25), total(0.25)]) == 250_000
    assert told([total(0.25), total(0.1)]) == 250_000
    assert told([total(0.25), total(0.1, "mock:other")]) == 350_000


def test_a_call_that_was_of_another_model_is_moved() -> None:
    moved = [call(0.5, "a", "mock:x"), call(0.5, "a", "mock:y"), total(0.5, "mock:y")]

    assert told(moved) == 500_000


def test_another_attempt_counts_from_nothing() -> None:
    dollars = ToldDollars()
    dollars.apply(total(0.2))
    dollars.next_attempt()
    dollars.apply(total(0.1))

    assert dollars.sum.microusd == 300_000


@pytest.mark.parametrize("usd", [-1.0, float("nan"), float("inf"), 1e300])
def test_what_cannot_be_is_nothing(usd: float) -> None:
    assert told([call(usd)]) is None


@given(st.lists(st.integers(0, 10**9), min_size=1))
def test_calls_in_any_order_give_the_same(amounts: list[int]) -> None:
    calls = [call(amount / 1_000_000, f"call_{n}") for n, amount in enumerate(amounts)]

    assert told(calls) == told(calls[::-1]) == sum(amounts)


def test_only_the_sum_is_rounded() -> None:
    assert told([call(0.0000004)] * 10) == 4
    assert told([call(0.0000004)]) == 0
    assert told([call(0.0000006)]) == 1
    assert told([call(0.1)] * 3) == 300_000


def test_what_is_partial_is_not_rounded_up() -> None:
    assert told([call(0.0000006), call(None)]) == 0


def test_a_call_of_which_nothing_was_told_leaves_the_sum_partial() -> None:
    assert is_partial(call(0.1, "a"), call(None, "b"))
    assert is_partial(call(0.1, "a"), call(None))
    assert is_partial(call(0.1, "a"), call(-1.0, "b"))
    assert is_partial(call(0.1, "a"), total(None))
    assert not is_partial(call(0.1, "a"), call(0.1, "b"))


def test_nothing_at_all_is_no_part() -> None:
    assert not is_partial(call(None, "a"), call(None, "b"))


def test_a_call_that_is_told_later_is_whole_and_stays_so() -> None:
    assert not is_partial(call(None, "a"), call(0.1, "a"), call(None, "a"))
    assert told([call(None, "a"), call(0.1, "a"), call(None, "a")]) == 100_000


def test_a_total_has_the_calls_of_its_model_in_it_and_of_no_other() -> None:
    assert not is_partial(call(None, "a"), call(None), total(0.2))
    assert is_partial(call(None, "a", "mock:other"), total(0.2))
    assert is_partial(call(None, "a"), total(0.2), call(None, "b"))


def test_what_another_attempt_did_not_tell_is_told_by_no_total() -> None:
    dollars = ToldDollars()
    dollars.apply(call(None, "a"))
    dollars.next_attempt()
    dollars.apply(total(0.1))

    assert (dollars.sum.microusd, dollars.sum.is_partial) == (100_000, True)


def test_the_parts_are_the_sum() -> None:
    dollars, again = ToldDollars(), ToldSum()
    reports = [call(None, "a"), call(0.1, "b"), total(0.5), call(0.2, "b"), call(None, "c", "m:o")]
    for report in reports:
        dollars.apply(report)

    for part in dollars.parts:
        again.add(part)

    assert again.microusd == dollars.sum.microusd == 600_000
    assert again.is_partial


def test_more_calls_than_are_kept_apart_are_added_up() -> None:
    dollars = ToldDollars()
    for number in range(MOST_CALLS + 50):
        dollars.apply(call(0.01, f"call_{number}"))
        dollars.apply(call(None, f"other_{number}"))

    assert dollars.sum.microusd == (MOST_CALLS + 50) * 10_000
    assert dollars.sum.is_partial
    assert len(dollars.parts) == MOST_CALLS + 2
