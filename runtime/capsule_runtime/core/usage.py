"""What the model calls of a run used: the fold from usage events to one total.

⊥ is a number that nobody reported, and ⊥ is not zero. Every field is a sum in which ⊥ adds
nothing: ⊥ only if all were ⊥. One field has a rule more: a call that wrote to the cache and did
not say how much of it for an hour leaves that part of the total unknown, for good.

Reports of single calls may come in any order. A report that names a call already heard of replaces
it. A cumulative report says what one model used so far in this attempt; only what it has beyond
all that was counted of that model is new, so junk and repetitions change nothing.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from capsule_runtime.events import Usage

MOST_TOKENS = 2**40
"""Of one call. A driver in Python may say anything."""


class Counts(Struct, frozen=True, omit_defaults=True, gc=False):
    """Numbers of tokens. None was not reported.

    Cached input stands beside `input_tokens`; the hour's writes are part of `cache_write_tokens`,
    reasoning is part of `output_tokens`.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    cache_write_1h_tokens: int | None = None
    reasoning_tokens: int | None = None

    @property
    def prompt_tokens(self) -> int | None:
        """Return all that the model read: fresh, from the cache and into the cache."""
        parts = (self.input_tokens, self.cache_read_tokens, self.cache_write_tokens)
        return sum_of_known(*parts)

    @property
    def tokens(self) -> int | None:
        """Return all that the model read and wrote: what a ceiling on tokens counts."""
        return sum_of_known(self.prompt_tokens, self.output_tokens)

    @property
    def hides_hour(self) -> bool:
        """Whether the cache was written to, and how much of it for an hour is unknown."""
        return bool(self.cache_write_tokens) and self.cache_write_1h_tokens is None


class CallUsage(Counts, frozen=True, omit_defaults=True, gc=False, kw_only=True):
    """What one model call used. The model is `provider:id`.

    With scope `total`: what a cumulative report had beyond the calls heard of. That is one call or
    many, so it has no price tier and is no last step.
    """

    model: str
    call_id: str | None = None
    scope: Literal["call", "total"] = "call"


class UsageTotal(Counts, frozen=True, omit_defaults=True, kw_only=True):
    """What all calls used so far. *steps* counts them; *last_step* is the newest single call."""

    steps: int
    model: str | None = None
    calls: tuple[CallUsage, ...] = ()
    last_step: CallUsage | None = None


class UsageFold:
    """Fold usage events. `calls` holds one entry per call, in the order they were first heard of."""

    def __init__(self) -> None:
        self.calls: list[CallUsage] = []
        self._all = _Tally()
        # A driver, its call ids and its cumulative counters are of one attempt.
        self._of_model: dict[str, _Tally] = {}
        self._place_of: dict[str, int] = {}

    @property
    def total(self) -> UsageTotal:
        """Return the total so far. Copies all calls."""
        counts = self._all.counts
        return UsageTotal(
            counts.input_tokens,
            counts.output_tokens,
            counts.cache_read_tokens,
            counts.cache_write_tokens,
            counts.cache_write_1h_tokens,
            counts.reasoning_tokens,
            steps=len(self.calls),
            model=self.calls[-1].model if self.calls else None,
            calls=tuple(self.calls),
            last_step=next((call for call in reversed(self.calls) if call.scope == "call"), None),
        )

    @property
    def tokens(self) -> int | None:
        """Return `total.tokens`, without the copy."""
        return self._all.counts.tokens

    def next_attempt(self) -> None:
        """Begin another attempt: call ids and cumulative counters start anew."""
        self._of_model.clear()
        self._place_of.clear()

    def apply(self, report: Usage) -> int | None:
        """Fold *report*; return the place in `calls` it changed, or None if it told nothing new."""
        told = _call_of(report)
        if told.scope == "total":
            grown = self._tally(told.model).growth_to(told)
            return None if grown is None else self._append(grown)
        place = self._place_of.get(told.call_id or "")
        return self._append(told) if place is None else self._replace(place, told)

    def _append(self, call: CallUsage) -> int:
        place = len(self.calls)
        if call.call_id:
            self._place_of[call.call_id] = place
        self.calls.append(call)
        self._count(call, 1)
        return place

    def _replace(self, place: int, call: CallUsage) -> int | None:
        if call == self.calls[place]:
            return None
        self._count(self.calls[place], -1)
        self.calls[place] = call
        self._count(call, 1)
        return place

    def _count(self, call: CallUsage, sign: int) -> None:
        self._all.add(call, sign)
        self._tally(call.model).add(call, sign)

    def _tally(self, model: str) -> _Tally:
        if (tally := self._of_model.get(model)) is None:
            tally = self._of_model[model] = _Tally()
        return tally


class _Sum:
    """A sum that knows how many reports are in it, so that one can be taken out again."""

    __slots__ = ("_reports", "_sum")

    def __init__(self) -> None:
        self._sum = self._reports = 0

    def add(self, count: int | None, sign: int) -> None:
        if count is not None:
            self._sum += sign * count
            self._reports += sign

    @property
    def known(self) -> int | None:
        return self._sum if self._reports else None


class _Tally:
    """The sums of many calls, field by field."""

    def __init__(self) -> None:
        self._input, self._output, self._reasoning = _Sum(), _Sum(), _Sum()
        self._read, self._write, self._write_1h = _Sum(), _Sum(), _Sum()
        self._hiding_hour = 0

    def add(self, call: CallUsage, sign: int) -> None:
        self._input.add(call.input_tokens, sign)
        self._output.add(call.output_tokens, sign)
        self._read.add(call.cache_read_tokens, sign)
        self._write.add(call.cache_write_tokens, sign)
        self._write_1h.add(call.cache_write_1h_tokens, sign)
        self._reasoning.add(call.reasoning_tokens, sign)
        self._hiding_hour += sign * call.hides_hour

    @property
    def counts(self) -> Counts:
        return Counts(
            self._input.known,
            self._output.known,
            self._read.known,
            self._write.known,
            None if self._hiding_hour else self._write_1h.known,
            self._reasoning.known,
        )

    def growth_to(self, now: CallUsage) -> CallUsage | None:
        """Return what *now* has beyond these sums; None if that is nothing."""
        was = self.counts
        growth = CallUsage(
            _growth(was.input_tokens, now.input_tokens),
            _growth(was.output_tokens, now.output_tokens),
            _growth(was.cache_read_tokens, now.cache_read_tokens),
            _growth(was.cache_write_tokens, now.cache_write_tokens),
            # Beyond an unknown number nothing can be told to be new.
            None if self._hiding_hour else _growth(self._write_1h.known, now.cache_write_1h_tokens),
            _growth(was.reasoning_tokens, now.reasoning_tokens),
            model=now.model,
            scope="total",
        )
        return growth if growth.tokens or growth.cache_write_1h_tokens else None


def _growth(was: int | None, now: int | None) -> int | None:
    return None if now is None else max(0, now - (was or 0))


def sum_of_known(*parts: int | None) -> int | None:
    """Return the sum of *parts*; None adds nothing, and only Nones are none."""
    known = [part for part in parts if part is not None]
    return sum(known) if known else None


def _call_of(report: Usage) -> CallUsage:
    return CallUsage(
        _possible(report.input_tokens),
        _possible(report.output_tokens),
        _possible(report.cache_read_tokens),
        _possible(report.cache_write_tokens),
        _possible(report.cache_write_1h_tokens),
        _possible(report.reasoning_tokens),
        model=report.model,
        call_id=report.call_id if report.scope == "call" else None,
        scope=report.scope,
    )


def _possible(count: int | None) -> int | None:
    """Return *count*, or None for one that no call can have used."""
    return count if count is not None and 0 <= count <= MOST_TOKENS else None
