"""When a run used what: the calls of its model, and what was told of their dollars, each dated."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from capsule_runtime.core import facts
from capsule_runtime.core.calls import CallUsage
from capsule_runtime.core.chain import FACT_START
from capsule_runtime.core.told_dollars import ToldDollars, ToldPart
from capsule_runtime.core.usage import UsageFold
from capsule_runtime.events import Usage

_fact = msgspec.json.Decoder(facts.Fact)
_OF_USAGE = (b'"usage"', b'"attempt-started"')


def dated_usage(bodies: Iterable[bytes]) -> list[tuple[str, CallUsage | ToldPart]]:
    """Return the model calls of a whole log and what was told of their dollars, with instants."""
    fold, dates, attempts = UsageFold(), list[str](), 0
    dollars, told_at = ToldDollars(), list[str]()
    for body in bodies:
        for line in body.splitlines():
            # Nearly all lines are something else, and are not worth decoding.
            if not line.startswith(FACT_START) or not any(it in line for it in _OF_USAGE):
                continue
            match _fact.decode(line):
                case facts.AttemptStarted():
                    attempts += 1
                    if attempts > 1:
                        fold.next_attempt()
                        dollars.next_attempt()
                case facts.Said(at=at, event=Usage() as report):
                    if fold.apply(report) == len(dates):
                        dates.append(at)
                    dollars.apply(report)
                    told_at += [at] * (len(dollars.parts) - len(told_at))
                case _:
                    pass
    calls = zip(dates, fold.calls, strict=True)
    return [*calls, *zip(told_at, dollars.parts, strict=True)]
