"""What Qwen Code used: calls that it tells one by one, and those that only its sum knows.

The sum of a `result` is that of the session, over all its processes, and has calls that no line
showed. What it has beyond all that was told is one report more; what was counted by the end of a
process is remembered with the context, so that the next process counts nothing again.

Where the sum stood before is unknown without a memory, and then so are the hidden calls of the first
turn. A sum that is missing, or has less than was told, says nothing of them: the next one will.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec import Struct

from capsule_drivers.qwen_lines import Tokens
from capsule_drivers.token_counts import Count, count_of
from capsule_runtime import Remember, Usage


class Sum(Struct, frozen=True):
    """Counts of a session; None for one that nobody knows. Cached input is in the input."""

    input: Count | None = None
    output: Count | None = None
    cached: Count | None = None


class Counted(Struct, frozen=True):
    """The memory of the driver: what is accounted for of a session."""

    session: str
    sum: Sum


class SessionUsage:
    """Count a session's calls, each once."""

    def __init__(self) -> None:
        self._counted = Sum(0, 0, 0)
        """What is accounted for."""
        self._seen = set[str]()
        self._hidden = 0
        self._is_owed = False
        """Whether hidden calls were to be told by a sum that said nothing of them."""

    def resume(self, session: str, memory: bytes | None) -> None:
        """Go on where the last process of *session* ended."""
        try:
            remembered = msgspec.json.decode(memory or b"", type=Counted)
        except msgspec.DecodeError:
            remembered = Counted("", Sum())
        self._counted = remembered.sum if remembered.session == session else Sum()

    def call(self, model: str, name: str, used: Tokens) -> Iterator[Usage]:
        """Yield the report of the call *name*, once."""
        if name in self._seen:
            return
        self._seen.add(name)
        told, counted = _sum_of(used), self._counted
        yield _usage(model, name, told)
        # What a call does not tell, the sum has beyond it.
        self._counted = Sum(
            _plus(counted.input, told.input),
            _plus(counted.output, told.output),
            _plus(counted.cached, told.cached),
        )

    def unknown(self, model: str, name: str) -> Iterator[Usage]:
        """Yield that the call *name* was made, and nobody says what it used."""
        if name not in self._seen:
            self._seen.add(name)
            yield Usage(model, call_id=name)

    def total(self, model: str, sum_so_far: Tokens) -> Iterator[Usage]:
        """Yield what *sum_so_far* has that no call told: the hidden ones, as one report."""
        told, known = _sum_of(sum_so_far), self._counted
        more = Sum(
            _growth(known.input, told.input),
            _growth(known.output, told.output),
            _growth(known.cached, told.cached),
        )
        self._counted = Sum(
            _later(known.input, told.input),
            _later(known.output, told.output),
            _later(known.cached, told.cached),
        )
        is_lost = known.input is None or known.output is None
        is_told = is_lost or bool(more.input or more.output)
        self._is_owed = not is_told and (more.input is None or more.output is None)
        if is_told:
            self._hidden += 1
            yield _usage(model, f"hidden-{self._hidden}", more)

    def miss_total(self) -> None:
        """Apply: a sum could not be read."""
        self._is_owed = True

    def owed(self, model: str) -> Iterator[Usage]:
        """Yield that hidden calls may have been made, if no sum will tell of them any more."""
        if self._is_owed:
            self._is_owed = False
            # A sum that comes after all tells the numbers of the same report.
            yield Usage(model, call_id=f"hidden-{self._hidden + 1}")

    def memory(self, session: str) -> Iterator[Remember]:
        """Yield what the next process of *session* has to know."""
        if session and self._counted != Sum():
            yield Remember(msgspec.json.encode(Counted(session, self._counted)))


def _sum_of(told: Tokens) -> Sum:
    return Sum(
        count_of(told.input_tokens), told.whole_output, count_of(told.cache_read_input_tokens)
    )


def _plus(counted: int | None, told: int | None) -> int | None:
    return None if counted is None else counted + (told or 0)


def _growth(known: int | None, told: int | None) -> int | None:
    """Return how much more *told* is; None if either is unknown, or if it cannot be the sum."""
    return None if known is None or told is None or told < known else told - known


def _later(known: int | None, told: int | None) -> int | None:
    """Return what is accounted for after a sum: one that is empty or less takes nothing back."""
    return max((count for count in (known, told) if count is not None), default=None)


def _usage(model: str, name: str, used: Sum) -> Usage:
    """Return *used* in our terms, where cached input stands beside the input."""
    whole, cached = used.input, used.cached or 0
    beside = None if whole is None or cached > whole else whole - cached
    return Usage(model, beside, used.output, used.cached, call_id=name)
