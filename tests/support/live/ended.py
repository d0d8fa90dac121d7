"""A run of a real harness that has ended, and what is checked of every such run."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from capsule_runtime.core.log import Record
from support.processes import processes_of

COUNTED = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
)
"""What is compared; nobody here serves writes to the cache that last an hour."""
Counts = dict[str, int]


@dataclass(frozen=True)
class Ended:
    """What became of a run."""

    status: int
    frames: list[dict[str, Any]]
    err: str
    facts: list[dict[str, Any]]
    """The whole log, frames too."""
    result: dict[str, Any]

    @property
    def outcome(self) -> tuple[str, str, int]:
        """Return outcome, reason and exit code, once all is checked that holds for every run."""
        self.check()
        return self.result["outcome"], self.result["reason"], self.status

    @cached_property
    def events(self) -> list[dict[str, Any]]:
        """Return the events that are on record."""
        return [fact["event"] for fact in self.facts if fact.get("fact") == "said"]

    @property
    def usage(self) -> list[Counts]:
        """Return what each call was said to have used; `counted` has the totals as well."""
        reports = [event for event in self.events if event["type"] == "usage"]
        calls = [one for one in reports if one.get("scope", "call") == "call"]
        return [{name: one[name] for name in COUNTED if name in one} for one in calls]

    @cached_property
    def record(self) -> Record:
        """Return what the whole log says."""
        return Record.fold(json.dumps(fact).encode() + b"\n" for fact in self.facts)

    @property
    def counted(self) -> Counts:
        """Return what the harness told in the end: totals too, and nothing twice."""
        used = (self.record.claimed or self.record.usage).total
        counts = {name: getattr(used, name) for name in sorted(COUNTED)}
        return {name: count for name, count in counts.items() if count is not None}

    @property
    def metered(self) -> list[Counts]:
        """Return what the gateway saw of each call that was answered whole."""
        ended = [call.ended for call in self.record.calls.calls if call.ended is not None]
        reports = [one.usage for one in ended if one.status == "ok" and one.usage is not None]
        return [
            {name: count for name in COUNTED if (count := getattr(one, name)) is not None}
            for one in reports
        ]

    @property
    def failure(self) -> str | None:
        """Return the kind of failure that the harness told."""
        kinds = [event["kind"] for event in self.events if event["type"] == "turn-failed"]
        return kinds[-1] if kinds else None

    @property
    def text(self) -> str:
        """Return all text that was streamed."""
        texts = [frame for frame in self.frames if frame["type"] == "text"]
        return "".join(frame["text"] for frame in texts if not frame["final"])

    def check(self) -> None:
        """Check what holds for every run: one end, the same everywhere, and nobody left."""
        finals = [f for f in self.frames if f["type"] == "status" and f["final"]]
        assert finals == [self.frames[-1]], self.err
        assert self.result["exit_code"] == self.status, self.err
        empty = [fact for fact in self.facts if fact.get("fact") == "tree-empty"]
        assert [fact["left"] for fact in empty] == [0]
        assert processes_of(self.frames[0]["run"]) == []


def total(reports: list[Counts]) -> Counts:
    """Return the sums of *reports*, field by field; a field that nobody reported stays away."""
    names = {name for report in reports for name in report}
    return {name: sum(report.get(name, 0) for report in reports) for name in sorted(names)}
