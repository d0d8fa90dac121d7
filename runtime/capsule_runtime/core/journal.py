"""Number the entries of a run's log and collect them for one write.

Every entry gets the next `seq`, every frame also the `seq` of the frame before it. What one batch
of events gives, frames and facts alike, becomes one `Append`, and that one row of the store.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from msgspec import Struct

from capsule_runtime.core.facts import Fact
from capsule_runtime.frames import (
    ArtifactFrame,
    Frame,
    FrameState,
    StatusFrame,
    TextFrame,
    ThinkingFrame,
)


class Moment(Struct, frozen=True, gc=False):
    """One reading of the clocks: *at* for the log (RFC 3339, UTC), *now* for durations."""

    at: str
    now: float


def day_of(at: str) -> str:
    """Return the UTC day of the instant *at*."""
    return at[: len("2026-01-31")]


class Append(Struct, frozen=True):
    """Write consecutive entries to the log, then show them. *facts* are those that are facts."""

    first: int
    last: int
    entries: Sequence[Frame | Fact]
    facts: Sequence[Fact]


class Position(Struct, frozen=True):
    """Where a log ends: its last `seq`, and the `seq` of its last frame."""

    seq: int = 0
    frame: int = 0


_F = TypeVar("_F", bound=Fact)


_START = Position()


class Journal:
    """Collect the entries of one batch. `take` hands them out."""

    def __init__(self, run: str, position: Position = _START) -> None:
        self.run = run
        self.at = ""
        self._seq = position.seq
        self._frame = position.frame
        self._entries: list[Frame | Fact] = []
        self._facts: list[Fact] = []

    @property
    def position(self) -> Position:
        """Return where the log ends once all that was collected is written."""
        return Position(self._seq, self._frame)

    def text(self, text: str, final: bool) -> None:
        """Add a text frame."""
        self._seq = seq = self._seq + 1
        self._entries.append(TextFrame(seq, self._frame, self.at, self.run, text, final))
        self._frame = seq

    def thinking(self, text: str) -> None:
        """Add a thinking frame."""
        self._seq = seq = self._seq + 1
        self._entries.append(ThinkingFrame(seq, self._frame, self.at, self.run, text))
        self._frame = seq

    def status(
        self,
        state: FrameState,
        message: str,
        context: str,
        *,
        final: bool = False,
        response: str | None = None,
    ) -> None:
        """Add a status frame."""
        seq, prev = self._next_frame()
        self._entries.append(
            StatusFrame(seq, prev, self.at, self.run, state, message, final, response, context)
        )

    def artifact(self, make: Callable[[int, int, str, str], ArtifactFrame]) -> None:
        """Add the artifact that *make* builds from seq, prev, at and run."""
        seq, prev = self._next_frame()
        self._entries.append(make(seq, prev, self.at, self.run))

    def fact(self, make: Callable[[int, str, str], _F]) -> None:
        """Add the fact that *make* builds from seq, at and run."""
        self._seq = seq = self._seq + 1
        fact = make(seq, self.at, self.run)
        self._entries.append(fact)
        self._facts.append(fact)

    def take(self) -> list[Append]:
        """Return what was collected since the last call: one write, or none."""
        if not self._entries:
            return []
        entries, self._entries = self._entries, []
        facts, self._facts = self._facts, []
        return [Append(entries[0].seq, entries[-1].seq, entries, facts)]

    def _next_frame(self) -> tuple[int, int]:
        prev, self._seq = self._frame, self._seq + 1
        self._frame = self._seq
        return self._seq, prev
