"""A run's log as a test sees it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TypeVar

from capsule_runtime import ArtifactFrame, Event, Frame, StatusFrame, TextFrame
from capsule_runtime.active_run import ActiveRun
from capsule_runtime.core.chain import Row
from capsule_runtime.core.facts import Fact, Noted, Said
from capsule_runtime.core.log import Record, decode_entries
from capsule_runtime.errors import UsageError
from capsule_runtime.host.feed import whole_log
from capsule_runtime.host.store import open_store

T = TypeVar("T")
_OF_ONE_RUN = re.compile(rb'(run_|ctx_|"pid":|"killed":|"burial_ms":)[0-9a-f]+')


@dataclass(frozen=True)
class Log:
    """The whole log of one run, as rows."""

    rows: tuple[Row, ...]

    @cached_property
    def entries(self) -> list[Frame | Fact]:
        """Return all entries, in order."""
        found: list[Frame | Fact] = []
        for row in self.rows:
            found += decode_entries(row.body)
        return found

    @cached_property
    def record(self) -> Record:
        """Return what the log says."""
        return Record.fold(row.body for row in self.rows)

    @property
    def body(self) -> bytes:
        """Return the lines of all entries."""
        return b"".join(row.body for row in self.rows)

    @property
    def lines(self) -> list[bytes]:
        """Return one line for each entry."""
        return self.body.splitlines(keepends=True)

    @property
    def frame_lines(self) -> list[bytes]:
        """Return one line for each frame."""
        body = b"".join(row.frames() for row in self.rows)
        return body.splitlines(keepends=True)

    @property
    def frames(self) -> list[Frame]:
        """Return the frames."""
        return [entry for entry in self.entries if isinstance(entry, Frame)]

    @property
    def notes(self) -> list[str]:
        """Return the texts of the notes."""
        return [fact.text for fact in self.of(Noted)]

    @property
    def events(self) -> list[Event]:
        """Return the events that are on record as facts."""
        return [fact.event for fact in self.of(Said)]

    @property
    def final(self) -> StatusFrame:
        """Return the one final status."""
        (final,) = [frame for frame in self.of(StatusFrame) if frame.final]
        return final

    @property
    def streamed(self) -> str:
        """Return all the text that was streamed."""
        return "".join(frame.text for frame in self.of(TextFrame) if not frame.final)

    @property
    def without_ids(self) -> bytes:
        """Return the lines without what no two runs share."""
        return _OF_ONE_RUN.sub(rb"\1", self.body)

    @property
    def artifacts(self) -> list[ArtifactFrame]:
        """Return the artifacts."""
        return self.of(ArtifactFrame)

    def of(self, kind: type[T]) -> list[T]:
        """Return the entries of *kind*."""
        return [entry for entry in self.entries if isinstance(entry, kind)]


async def finished(run: ActiveRun) -> Log:
    """Follow *run* to its end and return its log, from the store if its supervisor is closed."""
    try:
        return Log(tuple([row async for row in run.follow()]))
    except UsageError as refusal:
        assert refusal.code == "E-USE-061"
        state = (await run.wait()).out.parents[2]
        with open_store(state, readonly=True) as store:
            return Log(tuple(whole_log(partial(store.read, run.id))))


def log_of(rows: Iterable[Row]) -> Log:
    """Return *rows*, which are a whole log."""
    return Log(tuple(rows))


def assert_well_ended(log: Log) -> None:
    """Check what holds for the log of every run that has ended, whatever happened."""
    entries = log.entries
    assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
    frames = log.frames
    assert [frame.prev for frame in frames] == [0, *(frame.seq for frame in frames[:-1])]
    finals = [frame for frame in frames if isinstance(frame, StatusFrame) and frame.final]
    assert finals == [entries[-1]]
    assert_removals_are_paid(frames)
    tree = log.record.tree
    assert tree is None or tree.left == 0


def assert_removals_are_paid(frames: Iterable[Frame]) -> None:
    """Check that no streamed text stays without its end, and nothing is ended twice."""
    owed = False
    for frame in frames:
        if isinstance(frame, TextFrame):
            assert owed or not (frame.final and frame.text == "")
            owed = not frame.final
    assert not owed
