"""Whether a call fits: room is taken in the same step, and what gives way is the output alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capsule_runtime.core.ceilings import Ceiling
from capsule_runtime.core.gateway.admission import (
    USUAL_CAP,
    Admission,
    Declined,
    Rules,
    Uncertain,
    admit,
    demand,
)
from capsule_runtime.core.gateway.apis import Api
from capsule_runtime.core.gateway.asked import Asked, Feature
from capsule_runtime.core.gateway.bounds import FLOOR, Model
from capsule_runtime.core.gateway.edits import CapOutput
from capsule_runtime.core.gateway.media import document_of
from capsule_runtime.core.gateway.reservations import NOTHING, Account, Amount, Limit
from capsule_runtime.core.prices import Price, Rate

PRICE = Price(input=Rate(1_000_000), output=Rate(10_000_000))
"""A micro-dollar a token that is read, ten a token that is written."""
RULES = Rules(Model(PRICE))
CALL = Asked(Api.CHAT, "large", caps=(("max_tokens", 10_000),), text_bytes=1_000)
SEARCH = Feature("server tool", "tools web_search")


def account(microusd: int | None = None, tokens: int | None = None) -> Account:
    return Account("the run's ceiling", Limit(microusd, tokens))


def test_what_fits_is_held_as_it_is() -> None:
    run = account(1_000_000)

    admission = admit(run, CALL, RULES, may_count=False)

    assert isinstance(admission, Admission)
    assert admission.cap is None
    assert run.reserved == Amount(admission.worst.microusd, admission.worst.tokens)
    assert admission.worst.output_tokens == 10_000


def test_what_does_not_fit_is_counted_first_where_that_is_free() -> None:
    run = account(102_000)

    assert isinstance(admit(run, CALL, RULES, may_count=True), Uncertain)
    assert run.reserved == NOTHING

    admission = admit(run, CALL, RULES, 100, may_count=False)

    assert isinstance(admission, Admission)
    assert admission.cap is None


def test_then_the_output_gives_way_down_to_a_floor() -> None:
    run = account(80_000)

    admission = admit(run, CALL, RULES, may_count=False)

    assert isinstance(admission, Admission)
    assert admission.cap is not None
    assert FLOOR <= admission.cap.tokens < 10_000
    assert run.taken.microusd <= 80_000


def test_below_the_floor_it_is_refused_and_the_run_is_over() -> None:
    run = account(30_000)

    declined = admit(run, CALL, RULES, may_count=False)

    assert isinstance(declined, Declined)
    assert (declined.cause, declined.ceiling) == ("ceiling", Ceiling.USD)
    assert "$0.03 of $0.03 is left" in declined.message
    assert run.taken == NOTHING


@pytest.mark.parametrize(
    ("asked", "rules", "cause", "ceiling"),
    [
        (Asked(Api.CHAT, "large", features=(SEARCH,)), RULES, "unbounded", None),
        (CALL, Rules(Model()), "unpriced", Ceiling.USD),
        (Asked(Api.CHAT, "large", media=(document_of("JVBERi0="),)), RULES, "unbounded", None),
    ],
)
def test_what_nobody_can_bound_is_refused(
    asked: Asked, rules: Rules, cause: str, ceiling: Ceiling | None
) -> None:
    declined = admit(account(1_000_000), asked, rules, may_count=False)

    assert isinstance(declined, Declined)
    assert (declined.cause, declined.ceiling) == (cause, ceiling)


def test_what_the_caller_answers_for_passes() -> None:
    asked = Asked(Api.CHAT, "large", caps=(("max_tokens", 100),), features=(SEARCH,))
    answered = Rules(Model(PRICE), allowed=frozenset((SEARCH.name,)))

    assert isinstance(admit(account(1_000_000), asked, answered, may_count=False), Admission)


def test_what_the_caller_lets_go_passes_without_a_bound() -> None:
    run = account(10)

    admission = admit(run, CALL, Rules(Model(), is_lenient=True), may_count=False)

    assert isinstance(admission, Admission)
    assert run.reserved == NOTHING


def test_what_the_caller_lets_go_is_held_but_for_what_has_no_bound() -> None:
    run = account(200_000)
    asked = Asked(Api.CHAT, "large", caps=(("max_tokens", 10_000),), features=(SEARCH,))
    lenient = Rules(Model(PRICE), is_lenient=True)

    first = admit(run, asked, lenient, may_count=False)
    second = admit(run, asked, lenient, may_count=False)

    assert isinstance(first, Admission)
    assert first.worst.output_tokens == 10_000
    assert isinstance(second, Admission)
    assert run.taken.microusd <= 200_000


def test_a_call_without_a_cap_gets_one_where_something_is_bounded() -> None:
    asked = Asked(Api.CHAT, "large", text_bytes=10)

    bounded = admit(account(1_000_000), asked, RULES, may_count=False)
    free = admit(account(), asked, RULES, may_count=False)

    assert isinstance(bounded, Admission)
    assert isinstance(free, Admission)
    assert bounded.cap == CapOutput(USUAL_CAP)
    assert free.cap is None


def test_the_callers_own_cap_holds_for_all_but_never_below_the_thoughts() -> None:
    capped = Rules(Model(PRICE), cap=2_000)
    thoughtful = Asked(Api.MESSAGES, "large", caps=(("max_tokens", 30_000),), thinking_budget=8_000)

    lower = admit(account(), CALL, capped, may_count=False)
    enough = admit(account(), thoughtful, capped, may_count=False)
    less = admit(
        account(), Asked(Api.CHAT, "large", caps=(("max_tokens", 10),)), capped, may_count=False
    )

    assert isinstance(lower, Admission)
    assert isinstance(enough, Admission)
    assert isinstance(less, Admission)
    assert lower.cap == CapOutput(2_000)
    assert enough.cap == CapOutput(9_024)
    assert less.cap is None


def test_tokens_are_held_without_a_price() -> None:
    run = account(tokens=20_000)

    first = admit(run, CALL, Rules(Model()), may_count=False)
    second = admit(run, CALL, Rules(Model()), may_count=False)

    assert isinstance(first, Admission)
    assert isinstance(second, Declined)
    assert second.ceiling is Ceiling.TOKENS
    assert run.taken.tokens <= 20_000


def test_what_nothing_bounds_is_held_as_far_as_it_is_known() -> None:
    run = account()

    admission = admit(run, CALL, RULES, may_count=False)

    assert isinstance(admission, Admission)
    assert run.reserved.microusd == admission.worst.microusd > 100_000


def test_the_demand_of_a_call_is_what_it_would_hold() -> None:
    run = account(1_000_000)
    wanted = demand(run, CALL, RULES, None)
    admit(run, CALL, RULES, may_count=False)

    assert wanted == run.reserved
    assert demand(account(1), CALL, Rules(Model()), None) is None


calls = st.builds(
    Asked,
    st.just(Api.CHAT),
    st.just("large"),
    caps=st.one_of(
        st.just(()), st.integers(1, 50_000).map(lambda cap: (("max_completion_tokens", cap),))
    ),
    choices=st.integers(1, 4),
    text_bytes=st.integers(0, 100_000),
)


@given(
    st.one_of(st.none(), st.integers(0, 2_000_000)),
    st.one_of(st.none(), st.integers(0, 300_000)),
    st.lists(st.tuples(calls, st.booleans()), max_size=12),
)
def test_whatever_is_asked_no_ceiling_is_passed(
    microusd: int | None, tokens: int | None, asked: list[tuple[Asked, bool]]
) -> None:
    run = account(microusd, tokens)

    for call, ends in asked:
        verdict = admit(run, call, RULES, may_count=False)
        if isinstance(verdict, Admission) and ends:
            verdict.reservation.settle(verdict.reservation.worst)

        assert microusd is None or run.taken.microusd <= microusd
        assert tokens is None or run.taken.tokens <= tokens
