"""Number the entries of a run's log and group them into rows.

Every entry gets the next `seq`, every frame also the `seq` of the frame before it. Consecutive
entries of one kind become one `Append`, so that the store writes one row for them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeVar

from capsule_runtime.core.facts import Fact
from capsule_runtime.frames import (
    ArtifactFrame,
    Frame,
    FrameState,
    StatusFrame,
    TextFrame,
    ThinkingFrame,
)


class EntryKind(IntEnum):
    """What a row of the log holds."""

    FRAMES = 0
    FACTS = 1


@dataclass(frozen=True, slots=True)
class Moment:
    """One reading of the clocks: *at* for the log (RFC 3339, UTC), *now* for durations."""

    at: str
    now: float


@dataclass(frozen=True, slots=True)
class Append:
    """Write consecutive entries of one kind to the log, then show them."""

    kind: EntryKind
    first: int
    last: int
    entries: Sequence[Frame | Fact]


@dataclass(frozen=True, slots=True)
class Position:
    """Where a log ends: its last `seq`, and the `seq` of its last frame."""

    seq: int = 0
    frame: int = 0


_F = TypeVar("_F", bound=Fact)


class Journal:
    """Collect the entries of one batch. `take` hands them out."""

    def __init__(self, run: str, position: Position = Position()) -> None:
        self.run = run
        self.at = ""
        self._seq = position.seq
        self._frame = position.frame
        self._frames: list[Frame] = []
        self._facts: list[Fact] = []
        self._groups: list[Append] = []

    @property
    def position(self) -> Position:
        """Return where the log ends once all that was collected is written."""
        return Position(self._seq, self._frame)

    def text(self, text: str, final: bool) -> None:
        """Add a text frame."""
        if self._facts:
            self._close_facts()
        self._seq = seq = self._seq + 1
        self._frames.append(TextFrame(seq, self._frame, self.at, self.run, text, final))
        self._frame = seq

    def thinking(self, text: str) -> None:
        """Add a thinking frame."""
        if self._facts:
            self._close_facts()
        self._seq = seq = self._seq + 1
        self._frames.append(ThinkingFrame(seq, self._frame, self.at, self.run, text))
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
        self._frames.append(
            StatusFrame(seq, prev, self.at, self.run, state, message, final, response, context)
        )

    def artifact(self, make: Callable[[int, int, str, str], ArtifactFrame]) -> None:
        """Add the artifact that *make* builds from seq, prev, at and run."""
        seq, prev = self._next_frame()
        self._frames.append(make(seq, prev, self.at, self.run))

    def fact(self, make: Callable[[int, str, str], _F]) -> None:
        """Add the fact that *make* builds from seq, at and run."""
        if self._frames:
            self._close_frames()
        self._seq = seq = self._seq + 1
        self._facts.append(make(seq, self.at, self.run))

    def take(self) -> list[Append]:
        """Return what was collected since the last call, in order."""
        if self._frames:
            self._close_frames()
        if self._facts:
            self._close_facts()
        groups, self._groups = self._groups, []
        return groups

    def _next_frame(self) -> tuple[int, int]:
        if self._facts:
            self._close_facts()
        prev, self._seq = self._frame, self._seq + 1
        self._frame = self._seq
        return self._seq, prev

    def _close_frames(self) -> None:
        group, self._frames = self._frames, []
        self._groups.append(Append(EntryKind.FRAMES, group[0].seq, group[-1].seq, group))

    def _close_facts(self) -> None:
        group, self._facts = self._facts, []
        self._groups.append(Append(EntryKind.FACTS, group[0].seq, group[-1].seq, group))
