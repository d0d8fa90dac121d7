"""One run's account: which ceiling is reached, by what, and in which words."""

from __future__ import annotations

from typing import Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capsule_runtime import Usage
from capsule_runtime.core.ceilings import Ceiling, Ceilings, Reached, Refusal, Unheld
from capsule_runtime.core.ledger import Ledger, Settled, Spend
from capsule_runtime.core.model_names import Pattern
from capsule_runtime.core.money import Cost
from capsule_runtime.core.prices import Price, PriceTable, Provider, Rate, Row, cost_of
from capsule_runtime.core.terms import refusal_at_launch, spend_word

MODEL = "acme:large"
PRICE = Price(Rate(3_000_000), Rate(15_000_000), Rate(300_000), Rate(4_000_000), Rate(6_000_000))
TABLE = PriceTable("v7", (Provider("acme", (Row(Pattern("equals", "large"), PRICE),)),))


def ledger(
    *,
    usd: int | None = None,
    tokens: int | None = None,
    turns: int | None = None,
    tool_calls: int | None = None,
    on_unmetered: Literal["refuse", "allow"] = "refuse",
) -> Ledger:
    """Return a new account; *usd* is in micro-dollars."""
    return Ledger(Ceilings(usd, tokens, turns, tool_calls, on_unmetered), TABLE)


def refused(account: Ledger) -> str:
    assert account.refusal is not None
    return account.refusal.refusal


# Each ceiling.


def test_without_ceilings_nothing_is_refused() -> None:
    account = Ledger(Ceilings())

    account.used(Usage(MODEL, 10**11, 10**11))
    account.counted(10**6, 10**6)

    assert account.refusal is None
    assert account.exhausted() is None


def test_dollars_are_reached_when_all_are_spent() -> None:
    account = ledger(usd=10_000)

    account.used(Usage(MODEL, 1000, 100))
    assert account.refusal is None
    account.used(Usage(MODEL, 1000, 100))
    assert account.refusal is None
    account.used(Usage(MODEL, 0, 100, 1))

    assert account.refusal == Reached(Ceiling.USD, 10_000, 10_501, 3)
    assert refused(account) == (
        "the usd ceiling of $0.01 is reached: $0.010501 observed, with model call 3"
    )


def test_dollars_are_reached_exactly() -> None:
    account = ledger(usd=4_500)

    account.used(Usage(MODEL, 1000, 100))

    assert account.refusal == Reached(Ceiling.USD, 4_500, 4_500, 1)


def test_tokens_are_reached_when_all_are_used() -> None:
    account = ledger(tokens=1000)

    account.used(Usage(MODEL, 10, 9, 900, 80))
    assert account.refusal is None
    account.used(Usage(MODEL, 1, 0))

    assert account.refusal == Reached(Ceiling.TOKENS, 1000, 1000, 2)
    assert refused(account) == (
        "the tokens ceiling of 1000 is reached: 1000 observed, with model call 2"
    )


def test_turns_are_allowed_in_full() -> None:
    account = ledger(turns=3)

    account.counted(3, 50)
    assert account.refusal is None
    account.counted(4, 50)

    assert account.refusal == Reached(Ceiling.TURNS, 3, 4)
    assert refused(account) == "the turns ceiling of 3 is reached: 4 observed"


def test_tool_calls_are_allowed_in_full() -> None:
    account = ledger(tool_calls=2)

    account.counted(9, 2)
    assert account.refusal is None
    account.counted(9, 3)

    assert account.refusal == Reached(Ceiling.TOOL_CALLS, 2, 3)
    assert refused(account) == "the tool_calls ceiling of 2 is reached: 3 observed"


def test_ceilings_are_looked_at_in_one_order() -> None:
    assert list(Ceiling) == ["usd", "tokens", "turns", "tool_calls"]
    every = ledger(usd=1, tokens=1, turns=0, tool_calls=0)
    three = ledger(tokens=1, turns=0, tool_calls=0)
    two = ledger(turns=0, tool_calls=0)

    for account in (every, three):
        account.used(Usage(MODEL, 1000, 1000))
    two.counted(1, 1)

    reached = [getattr(account.refusal, "ceiling", None) for account in (every, three, two)]
    assert reached == [Ceiling.USD, Ceiling.TOKENS, Ceiling.TURNS]


def test_the_first_refusal_stays() -> None:
    account = ledger(tokens=10, turns=1)
    account.used(Usage(MODEL, 10, 0, call_id="a"))
    first = account.refusal

    account.counted(5, 5)
    account.used(Usage(MODEL, 1, 0, call_id="a"))

    assert account.refusal == first == Reached(Ceiling.TOKENS, 10, 10, 1)


def test_a_call_that_is_reported_again_is_charged_once() -> None:
    account = ledger(usd=10_000)

    for output in (100, 200, 100):
        account.used(Usage(MODEL, 1000, output, call_id="a"))

    assert account.refusal is None
    assert account.settled().cost == Cost(4_500, 4_500)


def test_a_crossing_names_the_call_that_was_corrected() -> None:
    account = ledger(tokens=100)
    account.used(Usage(MODEL, 10, 0, call_id="a"))
    account.used(Usage(MODEL, 10, 0, call_id="b"))

    account.used(Usage(MODEL, 95, 0, call_id="a"))

    assert account.refusal == Reached(Ceiling.TOKENS, 100, 105, 1)


def test_cumulative_reports_are_charged_for_their_growth() -> None:
    account = ledger(usd=10_000)

    account.used(Usage(MODEL, 1000, 100, scope="total"))
    account.used(Usage(MODEL, 1000, 100, scope="total"))
    assert account.refusal is None
    account.used(Usage(MODEL, 2000, 500, scope="total"))

    assert account.refusal == Reached(Ceiling.USD, 10_000, 13_500, 2)


def test_an_account_goes_on_over_attempts() -> None:
    account = ledger(tokens=100)
    account.used(Usage(MODEL, 60, 0, call_id="1"))

    account.next_attempt()
    account.used(Usage(MODEL, 60, 0, call_id="1"))

    assert account.refusal == Reached(Ceiling.TOKENS, 100, 120, 2)


# What is not known.


def test_writes_that_may_be_for_an_hour_are_charged_as_such() -> None:
    account = ledger(usd=600)

    account.used(Usage(MODEL, 0, 0, 0, 100))

    assert account.refusal == Reached(Ceiling.USD, 600, 600, 1, estimated=True)
    assert "about $0.0006 observed" in refused(account)


@pytest.mark.parametrize(
    ("report", "why"),
    [
        (Usage("acme:new", 10, 10), "nobody knows the price of 'acme:new'"),
        (Usage("acme:new", call_id="a"), "nobody knows the price of 'acme:new'"),
        (Usage(MODEL, None, 10), "model call 1 of 'acme:large' reported no input_tokens"),
        (Usage(MODEL, 10), "model call 1 of 'acme:large' reported no output_tokens"),
        (Usage(MODEL), "model call 1 of 'acme:large' reported no input_tokens"),
        (Usage(MODEL, 1, 1, 0, 0, 5), "model call 1 of 'acme:large' has a part without a price"),
    ],
)
def test_a_dollar_ceiling_that_cannot_be_held_refuses(report: Usage, why: str) -> None:
    account = ledger(usd=5_000_000)

    account.used(report)

    assert account.refusal == Unheld(Ceiling.USD, 5_000_000, why)
    assert refused(account) == f"the usd ceiling of $5.00 cannot be held: {why}"


def test_a_token_ceiling_needs_no_price_but_numbers() -> None:
    account = ledger(tokens=1000)

    account.used(Usage("acme:new", 10, 10))
    assert account.refusal is None
    account.used(Usage(MODEL, 10))

    assert refused(account) == (
        "the tokens ceiling of 1000 cannot be held: "
        "model call 2 of 'acme:large' reported no output_tokens"
    )


def test_a_call_with_an_id_may_still_be_completed() -> None:
    account = ledger(usd=5_000_000, tokens=1000)

    account.used(Usage(MODEL, 10, call_id="a"))
    account.used(Usage(MODEL, 10, call_id="b"))
    account.used(Usage(MODEL, 10, 1, call_id="a"))
    account.used(Usage(MODEL, 10, 1, call_id="b"))

    assert account.refusal is None
    assert account.settled().cost == Cost(90, 90)


def test_a_call_that_never_told_is_judged_once_nothing_more_can_come() -> None:
    account = ledger(usd=5_000_000)
    account.used(Usage(MODEL, 10, call_id="a"))
    account.used(Usage(MODEL, 10, 1, call_id="b"))
    before = account.refusal
    account.finish()

    assert before is None
    assert account.refusal is not None
    assert "model call 1 of 'acme:large' reported no output_tokens" in account.refusal.refusal


def test_no_more_calls_wait_for_the_rest_than_can_be_under_way() -> None:
    account = ledger(usd=5_000_000)
    for number in range(64):
        account.used(Usage(MODEL, 1, call_id=str(number)))
    before = account.refusal
    account.used(Usage(MODEL, 1, call_id="one more"))

    assert before is None
    assert account.refusal is not None


def test_writes_for_an_hour_count_where_all_writes_are_not_told() -> None:
    account = ledger(tokens=100)

    account.used(Usage(MODEL, 1, 1, cache_write_1h_tokens=10_000))

    assert account.refusal is not None
    assert "10002 observed" in account.refusal.refusal


def test_who_allows_unmetered_spending_is_held_to_what_is_known() -> None:
    account = ledger(usd=6_000, on_unmetered="allow")

    account.used(Usage("acme:new", 10, 10))
    account.used(Usage(MODEL, 1000))
    assert account.refusal is None
    account.used(Usage(MODEL, 1000, 0))

    assert account.refusal == Reached(Ceiling.USD, 6_000, 6_000, 3, estimated=True)


def test_without_such_a_ceiling_nothing_has_to_be_known() -> None:
    account = ledger(turns=3, tool_calls=3)

    account.used(Usage("acme:new"))

    assert account.refusal is None


# Before a launch.


@pytest.mark.parametrize(
    ("ceilings", "ceiling"),
    [
        (Ceilings(microusd=0), Ceiling.USD),
        (Ceilings(tokens=0), Ceiling.TOKENS),
        (Ceilings(turns=0), Ceiling.TURNS),
        (Ceilings(tool_calls=0), Ceiling.TOOL_CALLS),
    ],
)
def test_a_ceiling_of_nothing_is_used_up_before_the_start(
    ceilings: Ceilings, ceiling: Ceiling
) -> None:
    account = Ledger(ceilings, TABLE)

    assert account.exhausted() == Reached(ceiling, 0, 0)
    assert account.refusal is None


def test_a_ceiling_that_is_used_in_full_allows_no_further_launch() -> None:
    account = ledger(turns=3)
    account.counted(2, 0)
    assert account.exhausted() is None

    account.counted(3, 0)

    assert account.refusal is None
    assert account.exhausted() == Reached(Ceiling.TURNS, 3, 3)


@pytest.mark.parametrize(
    ("usage", "gateway", "word"),
    [
        ("per-call", False, "after-call"),
        ("cumulative", False, "after-call"),
        ("final", False, "after-run"),
        ("none", False, "unmetered"),
        ("per-call", True, "before-call"),
        ("none", True, "before-call"),
    ],
)
def test_the_word_for_when_spending_is_known(
    usage: Literal["per-call", "cumulative", "final", "none"], gateway: bool, word: str
) -> None:
    assert spend_word(usage, gateway=gateway) == word


LATE = "usage is reported only when the run is over"
NEVER = "usage is never reported"
PRICELESS = "nobody knows the price of 'acme:new'"


@pytest.mark.parametrize(
    ("ceilings", "spend", "model", "refusal"),
    [
        (Ceilings(5), Spend.AFTER_CALL, MODEL, None),
        (Ceilings(5), Spend.BEFORE_CALL, MODEL, None),
        (Ceilings(5), Spend.AFTER_CALL, None, None),
        (Ceilings(5), Spend.AFTER_RUN, MODEL, Unheld(Ceiling.USD, 5, LATE)),
        (Ceilings(5), Spend.UNMETERED, None, Unheld(Ceiling.USD, 5, NEVER)),
        (Ceilings(5), Spend.BEFORE_CALL, "acme:new", Unheld(Ceiling.USD, 5, PRICELESS)),
        (Ceilings(5), Spend.AFTER_CALL, "acme:new", Unheld(Ceiling.USD, 5, PRICELESS)),
        (Ceilings(tokens=5), Spend.AFTER_CALL, "acme:new", None),
        (Ceilings(tokens=5), Spend.AFTER_RUN, MODEL, Unheld(Ceiling.TOKENS, 5, LATE)),
        (Ceilings(tokens=5), Spend.UNMETERED, MODEL, Unheld(Ceiling.TOKENS, 5, NEVER)),
        (Ceilings(turns=5, tool_calls=5), Spend.UNMETERED, "acme:new", None),
        (Ceilings(), Spend.UNMETERED, "acme:new", None),
        (Ceilings(5, 5, on_unmetered="allow"), Spend.UNMETERED, "acme:new", None),
    ],
)
def test_what_nobody_could_hold_is_refused_at_launch(
    ceilings: Ceilings, spend: Spend, model: str | None, refusal: Unheld | None
) -> None:
    assert refusal_at_launch(ceilings, spend, model, TABLE) == refusal


def test_without_a_price_table_no_price_is_known() -> None:
    refusal = refusal_at_launch(Ceilings(5), Spend.AFTER_CALL, MODEL, None)

    assert refusal == Unheld(Ceiling.USD, 5, "nobody knows the price of 'acme:large'")


# The record.


def test_an_account_is_settled_with_the_version_of_its_prices() -> None:
    account = ledger()
    account.used(Usage(MODEL, 1000, 100))
    account.used(Usage(MODEL, 0, 0, 0, 100))
    account.counted(2, 3)

    settled = account.settled()

    assert settled == Settled(2, 2, 3, 1200, Cost(4_900, 5_100), "v7")


def test_what_nobody_knows_is_left_out_of_the_record() -> None:
    account = ledger()
    account.counted(1, 0)

    assert msgspec.json.encode(account.settled()) == b'{"steps":0,"turns":1,"tool_calls":0}'


def test_refusals_are_told_apart_in_json() -> None:
    refusals = [Reached(Ceiling.USD, 5, 6, 1), Unheld(Ceiling.TOKENS, 5, NEVER)]

    for refusal in refusals:
        json = msgspec.json.encode(refusal)
        assert msgspec.json.decode(json, type=Refusal) == refusal


# What holds for every run.

count = st.none() | st.integers(0, 2000)
reports = st.builds(
    Usage,
    model=st.sampled_from([MODEL, "acme:new"]),
    input_tokens=count,
    output_tokens=count,
    cache_write_tokens=count,
    call_id=st.sampled_from([None, "a", "b"]),
    scope=st.sampled_from(["call", "total"]),
)
limit = st.none() | st.integers(0, 20_000)
ceilings = st.builds(Ceilings, limit, limit, limit, limit, st.sampled_from(["refuse", "allow"]))


def spent(account: Ledger, heard: list[Usage]) -> Ledger:
    for number, report in enumerate(heard, 1):
        account.used(report)
        account.counted(number, 2 * number)
    return account


@given(ceilings, st.lists(reports))
def test_the_same_reports_are_refused_in_the_same_words(
    terms: Ceilings, heard: list[Usage]
) -> None:
    one, other = (spent(Ledger(terms, TABLE), heard) for _ in range(2))

    assert one.refusal == other.refusal
    assert one.settled() == other.settled()


@given(ceilings, st.lists(reports), st.lists(reports))
def test_what_was_refused_stays_refused(
    terms: Ceilings, heard: list[Usage], more: list[Usage]
) -> None:
    account = spent(Ledger(terms, TABLE), heard)
    refusal = account.refusal

    spent(account, more)

    assert refusal is None or account.refusal == refusal


@given(ceilings, st.lists(reports), st.sampled_from(list(Ceiling)), st.integers(1, 10**6))
def test_a_higher_ceiling_refuses_no_earlier(
    terms: Ceilings, heard: list[Usage], ceiling: Ceiling, more: int
) -> None:
    name = "microusd" if ceiling is Ceiling.USD else ceiling.value
    low = dict(terms.limits()).get(ceiling)
    higher = msgspec.structs.replace(terms, **{name: None if low is None else low + more})

    for end in range(len(heard) + 1):
        before, after = (spent(Ledger(t, TABLE), heard[:end]) for t in (terms, higher))
        assert before.refusal is not None or after.refusal is None


@given(ceilings, st.lists(reports))
def test_a_ceiling_is_reached_exactly_when_it_is(terms: Ceilings, heard: list[Usage]) -> None:
    account = Ledger(terms, TABLE)
    for number, report in enumerate(heard, 1):
        account.used(report)
        account.counted(number, 2 * number)
        settled = account.settled()
        charged = settled.cost.charged_microusd if settled.cost else 0
        over = [
            terms.microusd is not None and bool(settled.cost) and charged >= terms.microusd,
            terms.tokens is not None and (settled.tokens or 0) >= terms.tokens,
            terms.turns is not None and number > terms.turns,
            terms.tool_calls is not None and 2 * number > terms.tool_calls,
        ]
        if isinstance(account.refusal, Reached):
            break
        assert not any(over) or isinstance(account.refusal, Unheld)


@given(st.lists(reports))
def test_the_account_agrees_with_the_calls_it_is_of(heard: list[Usage]) -> None:
    account = spent(ledger(), heard)

    settled, total = account.settled(), account.usage.total
    assert (settled.steps, settled.tokens) == (total.steps, total.tokens)
    assert settled.cost == cost_of(total.calls, TABLE)
