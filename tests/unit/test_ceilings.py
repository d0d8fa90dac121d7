"""Whose ceilings hold, on what terms, and the words of a refusal."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from capsule_runtime import SpendError, UsageError
from capsule_runtime.core.ceilings import (
    NO_DAY,
    Ceiling,
    Ceilings,
    DayCeilings,
    DayReached,
    Refusal,
)
from capsule_runtime.core.ledger import Spend
from capsule_runtime.core.model_names import Pattern, check_model
from capsule_runtime.core.prices import DollarsPerMillion, Price, PriceTable, Provider, Rate, Row
from capsule_runtime.core.prices import override as price_of
from capsule_runtime.core.terms import Terms, terms_of

limit = st.none() | st.integers(0, 9)
metering = st.sampled_from(["refuse", "allow"])
ceilings = st.builds(Ceilings, limit, limit, limit, limit, metering)
PRICE = Price(Rate(1), Rate(1))
TABLE = PriceTable("v", (Provider("acme", (Row(Pattern("equals", "large"), PRICE),)),))


@given(ceilings, ceilings)
def test_a_ceiling_can_only_be_lowered(one: Ceilings, other: Ceilings) -> None:
    both = one.lowered_by(other)

    assert both == other.lowered_by(one)
    for name in ("microusd", "tokens", "turns", "tool_calls"):
        given = [limit for limit in (getattr(one, name), getattr(other, name)) if limit is not None]
        assert getattr(both, name) == min(given, default=None)


@pytest.mark.parametrize(
    ("capsule", "caller", "result"),
    [
        (Ceilings(5, on_unmetered="allow"), Ceilings(), "allow"),
        (Ceilings(5, on_unmetered="allow"), Ceilings(9), "refuse"),
        (Ceilings(5, on_unmetered="allow"), Ceilings(turns=3), "allow"),
        (Ceilings(5), Ceilings(on_unmetered="allow"), "refuse"),
        (Ceilings(), Ceilings(5, on_unmetered="allow"), "allow"),
        (Ceilings(tokens=5), Ceilings(5, on_unmetered="allow"), "refuse"),
        (Ceilings(), Ceilings(), "refuse"),
    ],
)
def test_only_whoever_set_a_ceiling_may_let_it_go(
    capsule: Ceilings, caller: Ceilings, result: str
) -> None:
    assert capsule.lowered_by(caller).on_unmetered == result


def test_no_capsule_lets_go_of_the_ceiling_of_the_day() -> None:
    capsule, day = Ceilings(5, on_unmetered="allow"), DayCeilings(9)

    ours = terms_of(capsule, Ceilings(), day, "none").ceilings
    callers = terms_of(capsule, Ceilings(on_unmetered="allow"), day, "none").ceilings

    assert (ours.on_unmetered, callers.on_unmetered) == ("refuse", "allow")


def test_ceilings_are_shown_in_one_line() -> None:
    assert Ceilings(1_500_000, 20, 3, 4).shown == "$1.50, 20 tokens, 3 turns, 4 tool calls"
    assert Ceilings().shown == ""
    assert DayCeilings(tokens=7).shown == "7 tokens"


# The terms of a launch.


def terms(
    ceilings: Ceilings,
    usage: Literal["per-call", "cumulative", "final", "none"] = "per-call",
    day: DayCeilings = NO_DAY,
) -> Terms:
    return terms_of(ceilings, Ceilings(), day, usage)


@pytest.mark.parametrize("counted", [Ceilings(turns=1), Ceilings(tool_calls=1)])
def test_what_is_told_at_the_end_cannot_be_counted_before(counted: Ceilings) -> None:
    late = terms_of(counted, Ceilings(), NO_DAY, "final", is_told_at_end=True)
    allowed = terms_of(replace(counted, on_unmetered="allow"), Ceilings(), NO_DAY, "final")

    with pytest.raises(UsageError, match="told only when the run is over") as refused:
        late.check(None, TABLE)
    allowed.check(None, TABLE)

    assert refused.value.code == "E-USE-040"


@pytest.mark.parametrize("name", ["--help", "-m", "", " ", "a\nb", "a\x1b[1m"])
def test_what_a_harness_could_take_for_an_option_is_no_model(name: str) -> None:
    with pytest.raises(UsageError) as refused:
        check_model(name)

    assert refused.value.code == "E-USE-037"


@pytest.mark.parametrize("name", [None, "gpt-5", "anthropic:claude", "openrouter/qwen/q:free"])
def test_a_model_is_called_what_its_provider_calls_it(name: str | None) -> None:
    check_model(name)


@pytest.mark.parametrize(
    "used_up", [Ceilings(0), Ceilings(tokens=0), Ceilings(turns=0), Ceilings(tool_calls=0)]
)
def test_a_ceiling_of_nothing_is_used_up_before_the_start(used_up: Ceilings) -> None:
    with pytest.raises(SpendError) as refused:
        terms(used_up).check(None, TABLE)

    assert (refused.value.code, refused.value.exit_status) == ("E-SPE-001", 3)


@pytest.mark.parametrize(
    ("held", "model", "code", "words"),
    [
        (terms(Ceilings(5), "final"), None, "E-USE-040", "only when the run is over"),
        (terms(Ceilings(tokens=5), "none"), None, "E-USE-040", "usage is never reported"),
        (
            terms(Ceilings(), "none", DayCeilings(5)),
            None,
            "E-USE-040",
            "for the day cannot be held",
        ),
        (terms(Ceilings(5)), "acme:new", "E-USE-041", "price of 'acme:new'"),
        (terms(Ceilings(5)), "new", "E-USE-041", "price of 'new'"),
        (terms(Ceilings(), day=DayCeilings(5)), "acme:new", "E-USE-041", "for the day cannot"),
    ],
)
def test_what_nobody_can_hold_is_refused_with_its_reason(
    held: Terms, model: str | None, code: str, words: str
) -> None:
    with pytest.raises(UsageError, match=words) as refused:
        held.check(model, TABLE)

    assert refused.value.code == code
    assert refused.value.hint


@pytest.mark.parametrize("model", [None, "acme:large", "large", "LARGE"])
def test_a_model_with_a_price_and_one_that_is_not_known_yet_may_begin(model: str | None) -> None:
    terms(Ceilings(5)).check(model, TABLE)
    terms(Ceilings(turns=1), "none").check(model, None)


def test_prices_are_needed_only_for_dollars() -> None:
    assert terms(Ceilings(5)).needs_prices
    assert terms(Ceilings(), day=DayCeilings(5)).needs_prices
    assert not terms(
        Ceilings(tokens=5, turns=5, tool_calls=5), day=DayCeilings(tokens=5)
    ).needs_prices


def test_a_price_of_the_callers_own_is_known_without_its_provider_too() -> None:
    row = price_of("acme:new", DollarsPerMillion("1", "2"))
    table = msgspec.structs.replace(TABLE, overrides=(row,))

    assert table.knows("new") and table.knows("acme:new")
    assert not table.knows("old") and not table.knows("n" * 300)


def test_the_word_of_the_launch_report_is_the_drivers() -> None:
    usages: list[Literal["per-call", "cumulative", "final", "none"]] = [
        "per-call",
        "cumulative",
        "final",
        "none",
    ]

    words = [terms(Ceilings(), usage).spend for usage in usages]
    assert words == [Spend.AFTER_CALL, Spend.AFTER_CALL, Spend.AFTER_RUN, Spend.UNMETERED]


# The words of a day's refusal.


@pytest.mark.parametrize(
    ("reached", "words"),
    [
        (
            DayReached(Ceiling.TOKENS, "2026-01-31", 100, 100),
            "the tokens ceiling of 100 for the day 2026-01-31 (UTC) is reached:"
            " 100 used or reserved by all runs",
        ),
        (
            DayReached(Ceiling.USD, "2026-01-31", 5_000_000, 5_000_000, 10_000, 250_000),
            "the usd ceiling of $5.00 for the day 2026-01-31 (UTC) has no room for a call beside"
            " the one that may be under way: $5.00 used or reserved by all runs,"
            " $0.01 of it left to this run, and a call of it took $0.25",
        ),
    ],
)
def test_a_days_refusal_names_ceiling_limit_and_observed(reached: DayReached, words: str) -> None:
    assert reached.refusal == words
    assert msgspec.json.decode(msgspec.json.encode(reached), type=Refusal) == reached


@pytest.mark.parametrize("wrong", [-1, 1.5, "10", True])
def test_a_ceiling_is_a_count(wrong: Any) -> None:
    with pytest.raises(UsageError) as own:
        Ceilings(tokens=wrong)
    with pytest.raises(UsageError) as of_day:
        DayCeilings(microusd=wrong)

    assert (own.value.code, of_day.value.code) == ("E-USE-044", "E-USE-044")
