"""What a harness says that its calls cost."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capsule_runtime import Usage
from capsule_runtime.core.told_dollars import ToldDollars

MODEL = "mock:model-1"


def told(reports: Sequence[Usage]) -> int | None:
    dollars = ToldDollars()
    for report in reports:
        dollars.apply(report)
    return dollars.microusd


def call(usd: float | None, id: str | None = None, model: str = MODEL) -> Usage:
    return Usage(model, cost_usd=usd, call_id=id)


def total(usd: float, model: str = MODEL) -> Usage:
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

    assert dollars.microusd == 300_000


@pytest.mark.parametrize("usd", [-1.0, float("nan"), float("inf"), 1e300])
def test_what_cannot_be_is_nothing(usd: float) -> None:
    assert told([call(usd)]) is None


@given(st.lists(st.integers(0, 10**9), min_size=1))
def test_calls_in_any_order_give_the_same(amounts: list[int]) -> None:
    calls = [call(amount / 1_000_000, f"call_{n}") for n, amount in enumerate(amounts)]

    assert told(calls) == told(calls[::-1]) == sum(amounts)
