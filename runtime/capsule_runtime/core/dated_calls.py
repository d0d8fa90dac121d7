"""When each call of a model was first heard of."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from capsule_runtime.core import facts
from capsule_runtime.core.calls import CallUsage
from capsule_runtime.core.chain import FACT_START
from capsule_runtime.core.usage import UsageFold
from capsule_runtime.events import Usage

_facts = msgspec.json.Decoder(facts.Fact)
_OF_USAGE = (b'"usage"', b'"attempt-started"')


def dated_calls(bodies: Iterable[bytes]) -> list[tuple[str, CallUsage]]:
    """Return the model calls of a whole log, each with the instant it was first heard of."""
    fold, dates, attempts = UsageFold(), list[str](), 0
    for body in bodies:
        for line in body.splitlines():
            # Nearly all lines are something else, and are not worth decoding.
            if not line.startswith(FACT_START) or not any(it in line for it in _OF_USAGE):
                continue
            match _facts.decode(line):
                case facts.AttemptStarted():
                    attempts += 1
                    if attempts > 1:
                        fold.next_attempt()
                case facts.Said(at=at, event=Usage() as report):
                    if fold.apply(report) == len(dates):
                        dates.append(at)
                case _:
                    pass
    return list(zip(dates, fold.calls, strict=True))
