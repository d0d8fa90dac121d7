"""What the model calls of a run used: the fold from usage events to one total.

⊥ is a number that nobody reported, and ⊥ is not zero. Every field is a sum in which ⊥ adds
nothing: ⊥ only if all were ⊥. One field has a rule more: a call that wrote to the cache and did
not say how much of it for an hour leaves that part of the total unknown, for good.

Reports of single calls may come in any order. A report that names a call already heard of replaces
it. A cumulative report says what one model used so far in this attempt; only what it has beyond
all that was counted of that model is new, so junk and repetitions change nothing. Past `MOST_CALLS`,
calls of a model are added up in one entry.
"""

from __future__ import annotations

from msgspec import structs

from capsule_runtime.core.calls import CallUsage, Counts, UsageTotal, call_of
from capsule_runtime.events import Usage

MOST_CALLS = 10_000
"""How many calls are kept apart. What a harness says beyond that must not fill the memory."""
_NO_MODEL = ""
"""The model of calls whose own has no place any more. Nobody knows its price."""


class UsageFold:
    """Fold usage events. `calls` holds one entry per call, in the order they were first heard of."""

    def __init__(self) -> None:
        self.calls: list[CallUsage] = []
        self._all = _Tally()
        # A driver, its call ids and its cumulative counters are of one attempt.
        self._of_model: dict[str, _Tally] = {}
        self._place_of: dict[str, int] = {}
        self._rest_of: dict[str, int] = {}

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
        told = call_of(report)
        if told.scope == "total":
            grown = self._of_model.get(told.model, _NOTHING).growth_to(told)
            return None if grown is None else self._append(grown)
        place = self._place_of.get(told.call_id or "")
        return self._append(told) if place is None else self._replace(place, told)

    def _append(self, call: CallUsage) -> int:
        place = len(self.calls)
        if place >= MOST_CALLS:
            return self._add_to_rest(call)
        if call.call_id:
            self._place_of[call.call_id] = place
        self.calls.append(call)
        self._count(call, 1)
        return place

    def _add_to_rest(self, call: CallUsage) -> int:
        """Add *call* to the rest of its model, which has no price tier: it is many calls."""
        model = call.model if call.model in self._of_model else _NO_MODEL
        call = structs.replace(call, model=model, call_id=None, scope="total")
        self._count(call, 1)
        if (place := self._rest_of.get(model)) is None:
            place = self._rest_of[model] = len(self.calls)
            self.calls.append(call)
        else:
            self.calls[place] = _sum_of(self.calls[place], call)
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


def _sum_of(one: CallUsage, other: CallUsage) -> CallUsage:
    hides = one.hides_hour or other.hides_hour
    hour = _plus(one.cache_write_1h_tokens, other.cache_write_1h_tokens)
    return CallUsage(
        _plus(one.input_tokens, other.input_tokens),
        _plus(one.output_tokens, other.output_tokens),
        _plus(one.cache_read_tokens, other.cache_read_tokens),
        _plus(one.cache_write_tokens, other.cache_write_tokens),
        None if hides else hour,
        _plus(one.reasoning_tokens, other.reasoning_tokens),
        model=one.model,
        scope="total",
    )


def _plus(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    return one + other


def _growth(was: int | None, now: int | None) -> int | None:
    return None if now is None else max(0, now - (was or 0))


_NOTHING = _Tally()
