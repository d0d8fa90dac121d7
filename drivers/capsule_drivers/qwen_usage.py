"""What Qwen Code used: calls that it tells one by one, and those that only its sum knows.

The sum of a `result` is that of the session, over all its processes, and has calls that no line
showed. What it has beyond all that was told is one report more; what was counted by the end of a
process is remembered with the context, so that the next process counts nothing again.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec import Struct

from capsule_drivers.qwen_lines import Tokens
from capsule_runtime import Remember, Usage


class Counted(Struct, frozen=True):
    """What is accounted for of a session: the memory of the driver."""

    session: str
    input: int = 0
    output: int = 0
    cached: int = 0


class SessionUsage:
    """Count a session's calls, each once."""

    def __init__(self) -> None:
        self._counted: Counted | None = Counted("")
        """None if it is not known where the session's sum stood."""
        self._seen = set[str]()
        self._hidden = 0

    def resume(self, session: str, memory: bytes | None) -> None:
        """Go on where the last process of *session* ended."""
        try:
            remembered = msgspec.json.decode(memory or b"", type=Counted)
        except msgspec.DecodeError:
            remembered = None
        self._counted = remembered if remembered and remembered.session == session else None

    def call(self, model: str, name: str, used: Tokens) -> Iterator[Usage]:
        """Yield the report of the call *name*, once."""
        if name in self._seen:
            return
        self._seen.add(name)
        yield _usage(model, name, used)
        if (known := self._counted) is not None:
            self._counted = Counted(
                known.session,
                known.input + (used.input_tokens or 0),
                known.output + (used.whole_output or 0),
                known.cached + (used.cache_read_input_tokens or 0),
            )

    def unknown(self, model: str, name: str) -> Iterator[Usage]:
        """Yield that the call *name* was made, and nobody says what it used."""
        if name not in self._seen:
            self._seen.add(name)
            yield Usage(model, call_id=name)

    def total(self, model: str, sum_so_far: Tokens) -> Iterator[Usage]:
        """Yield what *sum_so_far* has that no call told: the hidden ones, as one report."""
        told = Counted(
            "",
            sum_so_far.input_tokens or 0,
            sum_so_far.whole_output or 0,
            sum_so_far.cache_read_input_tokens or 0,
        )
        known, self._counted = self._counted, told
        if known is None:
            return
        more = Tokens(
            max(0, told.input - known.input),
            max(0, told.output - known.output),
            max(0, told.cached - known.cached),
        )
        # A turn that broke off has an empty sum, which takes nothing back.
        self._counted = Counted(
            "",
            max(told.input, known.input),
            max(told.output, known.output),
            max(told.cached, known.cached),
        )
        if more.is_anything:
            self._hidden += 1
            yield _usage(model, f"hidden-{self._hidden}", more)

    def memory(self, session: str) -> Iterator[Remember]:
        """Yield what the next process of *session* has to know."""
        if session and (known := self._counted) is not None:
            kept = Counted(session, known.input, known.output, known.cached)
            yield Remember(msgspec.json.encode(kept))


def _usage(model: str, name: str, used: Tokens) -> Usage:
    cached, whole = used.cache_read_input_tokens, used.input_tokens
    beside = None if whole is None else max(0, whole - (cached or 0))
    return Usage(model, beside, used.whole_output, cached, call_id=name)
