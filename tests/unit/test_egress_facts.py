"""Verdicts become a bounded number of facts, and none is lost from the sums."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capsule_runtime.core.destinations import Destination
from capsule_runtime.core.egress_facts import (
    ALLOWED_AT_MOST,
    REFUSED_AT_MOST,
    EgressFold,
    EgressSummary,
    Reached,
    VerdictBook,
)
from capsule_runtime.core.facts import Fact
from capsule_runtime.core.log import Record
from capsule_runtime.core.network_facts import Egress, EgressMore
from capsule_runtime.core.verdicts import Ending, Verdict, Why

AT, RUN = "2026-01-02T03:04:05.678Z", "run_1"
PLACE = Destination("a.org", 8443)
ALLOWED = Verdict(Ending.CLOSED, PLACE, "1.1.1.1", "", 10, 20, 30)
REFUSED = Verdict(Why.HOST, Destination("b.org"), None, "b.org was not granted", 0, 0, 1)
VERDICTS = st.builds(
    Verdict,
    st.sampled_from([*Why, *Ending]),
    st.sampled_from([None, PLACE, Destination("b.org", 80, plain=True)]),
    st.sampled_from([None, "1.1.1.1"]),
    st.text(max_size=5),
    *[st.integers(0, 100)] * 3,
)


def facts_of(verdicts: list[Verdict]) -> list[Egress | EgressMore]:
    book = VerdictBook()
    makers = [*(book.enter("proxy", verdict) for verdict in verdicts), book.rest()]
    return [make(seq, AT, RUN) for seq, make in enumerate(filter(None, makers), 1)]


def summary_of(facts: list[Egress | EgressMore]) -> EgressSummary:
    fold = EgressFold()
    for fact in facts:
        fold.apply(fact)
    assert fold.summary is not None
    return fold.summary


def test_a_verdict_is_a_fact_with_all_that_it_says() -> None:
    assert facts_of([ALLOWED, REFUSED]) == [
        Egress(1, AT, RUN, "proxy", None, Ending.CLOSED, "a.org:8443", "1.1.1.1", "", 10, 20, 30),
        Egress(2, AT, RUN, "proxy", Why.HOST, None, "b.org", None, REFUSED.message, 0, 0, 1),
    ]


@given(st.lists(VERDICTS, max_size=5))
def test_a_log_is_read_as_it_was_written(verdicts: list[Verdict]) -> None:
    facts = facts_of(verdicts)
    decoder = msgspec.json.Decoder(Fact)

    assert [decoder.decode(msgspec.json.encode(fact)) for fact in facts] == facts


@pytest.mark.parametrize(
    ("verdict", "most"), [(ALLOWED, ALLOWED_AT_MOST), (REFUSED, REFUSED_AT_MOST)]
)
def test_what_is_too_much_is_counted_in_one_fact(verdict: Verdict, most: int) -> None:
    other = ALLOWED if verdict is REFUSED else REFUSED
    facts = facts_of([*[verdict] * (most + 7), other])
    summary = summary_of(facts)

    assert len(facts) == most + 2
    assert isinstance(facts[-1], EgressMore)
    assert sorted([summary.allowed, summary.refused]) == [1, most + 7]
    assert summary.sent_bytes == 10 * summary.allowed
    assert summary.received_bytes == 20 * summary.allowed
    assert summary.is_cut


def test_what_a_flood_of_refusals_hides_is_only_refusals() -> None:
    facts = facts_of([*[REFUSED] * 5_000, ALLOWED])

    assert [fact.ended for fact in facts if isinstance(fact, Egress) and fact.ended] == ["closed"]


def test_places_are_summed_up_in_the_order_of_their_first_mention() -> None:
    nameless = Verdict(Why.MALFORMED, None, None)
    summary = summary_of(facts_of([REFUSED, ALLOWED, nameless, ALLOWED, REFUSED]))

    assert summary == EgressSummary(
        2,
        3,
        20,
        40,
        (
            Reached("proxy", "b.org", 0, 2, 0, 0, (Why.HOST,)),
            Reached("proxy", "a.org:8443", 2, 0, 20, 40, ()),
            Reached("proxy", "", 0, 1, 0, 0, (Why.MALFORMED,)),
        ),
        is_cut=False,
    )


def test_so_many_places_are_named_and_the_others_counted() -> None:
    many = [Verdict(Why.HOST, Destination(f"a{n}.org"), None) for n in range(300)]
    summary = summary_of(facts_of(many))

    assert (len(summary.places), summary.refused, summary.is_cut) == (200, 300, True)


def test_a_message_is_cut_before_it_fills_the_log() -> None:
    [fact] = facts_of([Verdict(Why.MALFORMED, None, None, "x" * 10_000)])

    assert isinstance(fact, Egress)
    assert len(fact.message) == 512


def test_a_record_adds_up_what_its_log_says_and_nothing_where_it_says_nothing() -> None:
    record = Record()
    before = record.egress.summary
    for fact in facts_of([ALLOWED]):
        record.apply_entry(fact)

    assert before is None
    assert record.egress.summary is not None
    assert record.position.seq == 1
