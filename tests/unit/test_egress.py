"""What was granted is let through, and for everything else there is one reason."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capsule_runtime.core.destinations import Destination
from capsule_runtime.core.egress import ADDRESSES_AT_MOST, EgressRules, judge_hello, refusal_of
from capsule_runtime.core.verdicts import STATUS, Ending, Verdict, Why

RULES = EgressRules.of(
    ["a.org", "*.b.org:8443", "http://c.org", "10.0.0.1", "a.org:22", "[fd00::1]:80"]
)
LABELS = st.sampled_from(["a", "b", "org", "x"])
NAMES = st.lists(LABELS, min_size=2, max_size=4).map(".".join)
PLACES = st.builds(Destination, NAMES, st.sampled_from([80, 443, 8443]), st.booleans())
WILD = st.builds(
    Destination, NAMES.map("*.{}".format), st.sampled_from([443, 8443]), st.just(False)
)


def why(host: str, port: int = 443, *, plain: bool = False) -> Why | None:
    refusal = RULES.judge(Destination(host, port, plain))
    return refusal.why if refusal else None


@pytest.mark.parametrize(
    ("host", "port", "plain"),
    [
        ("a.org", 443, False),
        ("a.org", 22, False),
        ("x.b.org", 8443, False),
        ("y.x.b.org", 8443, False),
        ("c.org", 80, True),
        ("10.0.0.1", 443, False),
        ("fd00::1", 80, False),
    ],
)
def test_what_was_granted_is_let_through(host: str, port: int, plain: bool) -> None:
    assert why(host, port, plain=plain) is None


@pytest.mark.parametrize(
    ("host", "port", "plain", "reason"),
    [
        ("b.org", 8443, False, Why.HOST),
        ("xa.org", 443, False, Why.HOST),
        ("a.org.evil.example", 443, False, Why.HOST),
        ("a.org", 8443, False, Why.PORT),
        ("x.b.org", 443, False, Why.PORT),
        ("a.org", 80, True, Why.PLAIN),
        ("c.org", 443, False, Why.PLAIN),
        ("c.org", 80, False, Why.PLAIN),
        ("c.org", 8080, True, Why.PORT),
        ("10.0.0.2", 443, False, Why.LITERAL),
        ("10.0.0.1", 80, False, Why.PORT),
        ("169.254.169.254", 80, True, Why.LITERAL),
        ("::1", 443, False, Why.LITERAL),
    ],
)
def test_what_was_not_granted_is_refused(host: str, port: int, plain: bool, reason: Why) -> None:
    assert why(host, port, plain=plain) is reason


def test_where_nothing_was_granted_nothing_is_let_through() -> None:
    refusal = EgressRules().judge(Destination("a.org"))

    assert refusal is not None
    assert refusal.why is Why.HOST


@given(PLACES, st.lists(st.one_of(PLACES, WILD), max_size=5))
def test_a_place_is_let_through_when_one_grant_alone_lets_it_through(
    asked: Destination, granted: list[Destination]
) -> None:
    alone = [EgressRules((it,)).judge(asked) is None for it in granted]

    assert (EgressRules(tuple(granted)).judge(asked) is None) == any(alone)


@given(st.lists(st.one_of(PLACES, WILD), max_size=5))
def test_rules_are_what_the_words_of_the_grants_say(granted: list[Destination]) -> None:
    assert set(EgressRules.of(map(str, granted)).granted) == set(granted)


def test_a_name_may_lead_to_a_private_address_that_is_listed_for_its_port() -> None:
    asked, addresses = Destination("a.org"), ["127.0.0.1", "10.0.0.1", "10.0.0.2", "1.1.1.1"]

    assert RULES.sift(asked, addresses, lambda _: False).dialable == ("10.0.0.1", "1.1.1.1")
    on_another = Destination("a.org", 22)
    assert RULES.sift(on_another, addresses, lambda _: False).dialable == ("1.1.1.1",)


def test_of_a_name_with_many_addresses_a_few_are_looked_at() -> None:
    many = [f"127.0.0.{n}" for n in range(200)]
    sifted = RULES.sift(Destination("a.org"), many, lambda _: False)

    assert len(sifted.refused) == ADDRESSES_AT_MOST
    refusal = refusal_of(Destination("a.org"), sifted)
    assert refusal.why is Why.ADDRESS
    assert len(refusal.message) < 200


def test_a_name_without_addresses_is_not_found() -> None:
    sifted = RULES.sift(Destination("a.org"), [], lambda _: False)

    assert refusal_of(Destination("a.org"), sifted).why is Why.UNRESOLVED


@pytest.mark.parametrize(
    ("host", "server_name", "fits"),
    [
        ("a.org", "a.org", True),
        ("a.org", "b.org", False),
        ("a.org", None, False),
        ("a.org", "x.a.org", False),
        ("10.0.0.1", None, True),
        ("10.0.0.1", "a.org", False),
        ("10.0.0.1", "10.0.0.1", False),
    ],
)
def test_a_greeting_is_for_the_host_that_was_asked_for(
    host: str, server_name: str | None, fits: bool
) -> None:
    assert (judge_hello(Destination(host), server_name) is None) is fits


def test_every_refusal_has_a_status_that_no_client_takes_for_success() -> None:
    assert set(STATUS) == set(Why)
    assert all(status[0] in "45" for status in STATUS.values())


def test_a_verdict_allows_when_it_tells_of_an_end() -> None:
    assert Verdict(Ending.CLOSED, None, None).is_allowed
    assert not Verdict(Why.HOST, None, None).is_allowed
    assert set(map(str, Why)) & set(map(str, Ending)) == set()
