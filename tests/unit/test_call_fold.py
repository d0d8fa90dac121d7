"""What a log says of a run's model calls, and how many of them begin in a minute."""

from __future__ import annotations

import json

import pytest

from capsule_runtime.core.call_facts import CallEnded, CallFact, CallRefused, CallStarted
from capsule_runtime.core.call_fold import REFUSALS_KEPT, CallFold
from capsule_runtime.core.dated_usage import Untold, dated_usage
from capsule_runtime.core.gateway.pace import Pace
from capsule_runtime.core.gateway.reservations import NOTHING, Amount
from capsule_runtime.events import Usage

AT = "2026-01-31T10:00:00.000000Z"


def started(call: str, microusd: int = 100, tokens: int = 10) -> CallStarted:
    return CallStarted(1, AT, "r", call, "acme", "large", "messages", microusd, tokens)


def ended(
    call: str,
    microusd: int = 40,
    tokens: int = 4,
    *,
    is_estimate: bool = False,
    is_unsettled: bool = False,
) -> CallEnded:
    return CallEnded(
        2,
        AT,
        "r",
        call,
        "ok",
        microusd=microusd,
        tokens=tokens,
        is_estimate=is_estimate,
        is_unsettled=is_unsettled,
    )


def fold(*facts: CallFact) -> CallFold:
    made = CallFold()
    for fact in facts:
        made.apply(fact)
    return made


def test_what_is_over_is_charged_and_what_is_not_counts_as_it_is_held() -> None:
    found = fold(started("a"), started("b"), ended("a"))

    assert found.settled == Amount(40, 4)
    assert found.unsettled == Amount(100, 10)
    assert found.taken == Amount(140, 14)
    assert [call.is_unsettled for call in found.calls] == [False, True]


def test_an_estimate_and_what_was_cut_off_are_figures_of_their_own() -> None:
    found = fold(
        started("a"),
        started("b"),
        ended("a", 100, 10, is_estimate=True),
        ended("b", 100, 10, is_unsettled=True),
    )

    assert (found.settled, found.estimated) == (Amount(100, 10), Amount(100, 10))
    assert found.unsettled == Amount(100, 10)


def test_the_end_of_what_never_began_is_nothing() -> None:
    found = fold(ended("a"))

    assert (found.count, found.taken) == (0, NOTHING)


def test_refusals_are_kept_up_to_a_number_and_all_are_counted() -> None:
    refusal = CallRefused(1, AT, "r", "acme", "ceiling", "no room")

    found = fold(*[refusal] * (REFUSALS_KEPT + 5))

    assert (found.refused, len(found.refusals)) == (REFUSALS_KEPT + 5, REFUSALS_KEPT)


def lines(*facts: dict[str, object]) -> list[bytes]:
    return [json.dumps(fact).encode() + b"\n" for fact in facts]


def fact(name: str, **more: object) -> dict[str, object]:
    return {"fact": name, "seq": 1, "at": AT, "run": "r", **more}


@pytest.mark.parametrize(("ledger", "counted"), [("gateway", 7), ("driver", 5)])
def test_usage_is_counted_from_one_source(ledger: str, counted: int) -> None:
    attempt = fact(
        "attempt-started",
        attempt=1,
        owner="o",
        driver="jsonl",
        argv=[],
        env_names=[],
        containment="sealed",
        limits={},
        ledger=ledger,
    )
    said = fact("said", event={"type": "usage", "model": "acme:large", "input_tokens": 5})
    begun = fact("call-started", call="a", provider="acme", model="large", api="messages")
    usage = {"type": "usage", "model": "acme:large", "input_tokens": 7, "call_id": "a"}
    over = fact("call-ended", call="a", status="ok", usage=usage)
    cut = fact("call-started", call="b", provider="acme", model="large", api="x", microusd=9)

    found = [what for _, what in dated_usage(lines(attempt, said, begun, over, cut))]

    assert [getattr(what, "input_tokens", None) for what in found[:1]] == [counted]
    assert found[-1] == Untold("acme:large", 9, is_cut=True)
    assert Usage("acme:large", 7, call_id="a").input_tokens == 7


def test_no_more_than_so_many_begin_within_a_minute() -> None:
    pace = Pace(2)

    began = [pace.begin(now) for now in (0.0, 10.0, 20.0, 59.0, 60.0, 61.0, 70.0)]

    assert began == [None, None, 40.0, 1.0, None, 9.0, None]
    assert Pace(None).begin(0.0) is None
