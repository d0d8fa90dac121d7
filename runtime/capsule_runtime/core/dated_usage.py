"""When a run used what: the calls of its model, and what was told of their dollars, each dated."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec import Struct

from capsule_runtime.core import facts
from capsule_runtime.core.call_facts import CallEnded, CallStarted
from capsule_runtime.core.calls import CallUsage
from capsule_runtime.core.chain import FACT_START
from capsule_runtime.core.told_dollars import ToldDollars, ToldPart
from capsule_runtime.core.usage import UsageFold
from capsule_runtime.events import Usage

_fact = msgspec.json.Decoder(facts.Fact)
_OF_USAGE = (b'"usage"', b'"attempt-started"', b'"call-started"', b'"call-ended"')
_METERED = "gateway"


class Untold(Struct, frozen=True):
    """A call of which nobody told what it used: what it counts as, in micro-dollars.

    *is_cut*: it was cut off, or is not known to be over; else what was held was charged.
    """

    model: str
    microusd: int
    is_cut: bool


def dated_usage(bodies: Iterable[bytes]) -> list[tuple[str, CallUsage | ToldPart | Untold]]:
    """Return the model calls of a whole log and what was told of their dollars, with instants."""
    opened, untold = dict[str, CallStarted](), list[tuple[str, Untold]]()
    fold, dates, attempts = UsageFold(), list[str](), 0
    dollars, told_at, is_metered = ToldDollars(), list[str](), False
    for body in bodies:
        for line in body.splitlines():
            # Nearly all lines are something else, and are not worth decoding.
            if not line.startswith(FACT_START) or not any(it in line for it in _OF_USAGE):
                continue
            match _fact.decode(line):
                case facts.AttemptStarted(ledger=ledger):
                    attempts, is_metered = attempts + 1, ledger == _METERED
                    if attempts > 1:
                        fold.next_attempt()
                        dollars.next_attempt()
                case facts.Said(at=at, event=Usage() as report):
                    if not is_metered and fold.apply(report) == len(dates):
                        dates.append(at)
                    dollars.apply(report)
                    told_at += [at] * (len(dollars.parts) - len(told_at))
                case CallStarted() as started:
                    opened[started.call] = started
                case CallEnded(at=at, usage=report) as ended:
                    started_call = opened.pop(ended.call, None)
                    if is_metered and report is not None and fold.apply(report) == len(dates):
                        dates.append(at)
                    if started_call and (ended.is_unsettled or ended.is_estimate):
                        cut = ended.is_unsettled
                        untold.append((at, Untold(_name(started_call), ended.microusd, cut)))
                case _:
                    pass
    calls = zip(dates, fold.calls, strict=True)
    untold += [(it.at, Untold(_name(it), it.microusd, True)) for it in opened.values()]
    return [*calls, *zip(told_at, dollars.parts, strict=True), *untold]


def _name(started: CallStarted) -> str:
    return f"{started.provider}:{started.model}"
