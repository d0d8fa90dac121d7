"""What a program that embeds the runtime holds: a run, its line in a listing, its result."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Protocol, Self

import msgspec
from msgspec import Struct

from capsule_runtime.core.calls import UsageTotal
from capsule_runtime.core.chain import Row
from capsule_runtime.core.index import IndexRow
from capsule_runtime.core.log import Record
from capsule_runtime.core.outcome import Outcome, Reason
from capsule_runtime.core.work import WorkChanges
from capsule_runtime.errors import StoreError
from capsule_runtime.frames import Frame

_frame = msgspec.json.Decoder(Frame)


class RunSummary(Struct, frozen=True):
    """One line of a listing. While the run goes on, what only its end can tell is None."""

    run: str
    capsule: str
    context: str
    task: str
    """How the task begins, on one line."""
    state: str
    created_at: str
    ended_at: str | None
    outcome: Outcome | None
    reason: Reason | None
    session: str | None


class RunResult(Struct, frozen=True):
    """What became of a run."""

    run: str
    outcome: Outcome
    reason: Reason
    message: str
    """What the final status says."""
    response: str | None
    """The answer, if the run completed."""
    session: str | None
    """The harness's own conversation."""
    turns: int
    tool_calls: int
    tokens: int | None
    """All that was read and written, as the harness reported it; None if it reported nothing."""
    usage: UsageTotal
    """What the model calls used, in sum and each."""
    harness_microusd: int | None
    """What the harness itself says that it cost, in micro-dollars; None if it says nothing."""
    harness_is_partial: bool
    """Whether that is the least: of some calls it said nothing."""
    created_at: str
    ended_at: str
    out: Path
    """The folder of what the run left; `result.txt` in it is the answer."""
    changes: WorkChanges | None = None
    """What it changed in the work directory, with warnings; None if there was nothing to tell."""
    awaits_apply: bool = False
    """Whether these are changes of a copy, which `capsule apply` would make in the original."""


class RunHandle(Protocol):
    """One run of the state directory, whoever owns it, while it goes on and afterwards.

    To cancel whoever waits in one of these leaves the run as it is.
    """

    @property
    def id(self) -> str:
        """Return the run's id."""
        ...

    def frames(self, after: int = 0) -> AsyncIterator[Frame]:
        """Yield the frames behind entry *after* of the log, each once committed, until the end.

        A reader may be slow, begin late or leave: it misses none, and holds nothing up. A `seq` is
        where to begin again.

        Raises:
            StoreError: the log cannot be read.
        """
        ...

    async def wait(self) -> RunResult:
        """Wait for the end and return what became of the run.

        Raises:
            StoreError: the log could not be written to its end, or cannot be read.
        """
        ...

    async def interrupt(self) -> None:
        """Ask the run to stop, and return once its owner has heard it.

        The harness has its grace to end its turn. A run that has ended is left as it is. To cancel this takes back nothing.

        Raises:
            HostError: E-HOST-010, the owner of the run does not answer.
            StoreError: the log cannot be written.
        """
        ...

    async def steer(self, text: str) -> str:
        """Hand *text* to the working harness; return the id by which it says that it took it.

        On record first, then sent. To cancel this takes back nothing.

        Raises:
            UsageError: the run does not work (E-USE-004), or its harness takes no words (E-USE-005).
            HostError: E-HOST-010, the owner of the run does not answer.
            StoreError: the log cannot be written.
        """
        ...

    async def kill(self) -> None:
        """End the run now, with all its processes, and return once its end is on record.

        A run that has ended is left as it is. To cancel this takes back nothing.

        Raises:
            HostError: E-HOST-010, the run did not end in time.
            StoreError: the log cannot be written.
        """
        ...


class Frames:
    """The frames among *rows*. Like the rows it holds nothing: whoever stops asking owes nothing."""

    def __init__(self, rows: AsyncIterator[Row]) -> None:
        self._rows = rows
        self._found: list[Frame] = []

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Frame:
        while not self._found:
            row = await anext(self._rows)
            self._found = [_frame.decode(line) for line in row.frames().splitlines()]
            self._found.reverse()
        return self._found.pop()


def summary_of(row: IndexRow) -> RunSummary:
    """Return *row* of the index as callers get it."""
    return RunSummary(
        run=row.id,
        capsule=row.capsule,
        context=row.context,
        task=row.task,
        state=row.state,
        created_at=row.created_at,
        ended_at=row.ended_at,
        outcome=Outcome(row.outcome) if row.outcome else None,
        reason=Reason(row.reason) if row.reason else None,
        session=row.session,
    )


def result_of(record: Record, out: Path) -> RunResult:
    """Return what *record*, the fold of a whole log, says of its run.

    Raises:
        StoreError: the log has no end.
    """
    created, ended, final = record.created, record.ended, record.final
    if created is None or ended is None or final is None:
        raise StoreError("E-STO-004", f"the log of the run in {out.parent} has no end")
    return RunResult(
        run=created.run,
        outcome=ended.outcome,
        reason=ended.reason,
        message=final.message,
        response=final.response,
        session=record.session.id if record.session else None,
        turns=record.turns,
        tool_calls=record.tool_calls,
        tokens=record.tokens,
        usage=record.usage.total,
        harness_microusd=record.told_dollars.sum.microusd,
        harness_is_partial=record.told_dollars.sum.is_partial,
        created_at=created.at,
        ended_at=ended.at,
        out=out,
        changes=record.changes,
        awaits_apply=awaits_apply(record),
    )


def awaits_apply(record: Record) -> bool:
    """Tell whether the run changed something in a copy that nobody has applied yet."""
    changes = record.changes
    if changes is None or changes.tally is None or record.applied is not None:
        return False
    return changes.tally.total + changes.internal > 0
