"""The end of a run's log, where its owner writes, and one write to it."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import asdict

from msgspec import Struct

from capsule_runtime.core.chain import START, Link, Row, forge
from capsule_runtime.core.day_share import Share
from capsule_runtime.core.index import IndexRow
from capsule_runtime.errors import StoreError
from capsule_runtime.host.reservations import Settlement, settle
from capsule_runtime.host.rows import ContextRow
from capsule_runtime.host.statements import QUERIES
from capsule_runtime.host.store_errors import fence_lost

SealedRow = tuple[int, int, int, bytes, bytes]
"""The columns of one row of the log: run number, first and last entry, body, hash."""

_STATEMENT_ROWS = (64, 16, 4, 1)
_INSERT_ROWS = {
    size: f"{QUERIES['insert_rows']} values {', '.join(['(?, ?, ?, ?, ?)'] * size)}"
    for size in _STATEMENT_ROWS
}

Done = Callable[[StoreError | None], None]
"""Called on the event loop once a write is on disk (None), or lost."""


class LogTail(Struct, eq=False):
    """The owner's place at the end of one run's log. Only the store gives and moves it.

    *next* is the number that the next entry must have. The rest is for the writer: *end* is where
    the chain stands, *bell* what to ring, *is_claimed* that it was another's, who may have been told
    of followers, *failure* why nothing more is written.
    """

    no: int
    id: str
    next: int
    end: Link
    bell: int
    at_rest: bool
    is_claimed: bool = False
    failure: StoreError | None = None
    share: Share | None = None
    """What the run was given of the day when it was created."""

    def close(self) -> None:
        """Close the bell. For the store: the writer may still ring it."""
        if self.bell >= 0:
            os.close(self.bell)
            self.bell = -1


class Write(Struct, eq=False):
    """Rows for one log and what changes with them. *error* is None once it is on disk.

    *size* is the number of bytes to write, known once their numbers are reserved.
    """

    tail: LogTail
    rows: Sequence[Row]
    index: IndexRow | None
    context: ContextRow | None
    done: Done
    settlement: Settlement | None = None
    after_rest: bool = False
    error: StoreError | None = None
    before: Link = START
    sealed: list[SealedRow] = []
    size: int = 0

    def reserve(self) -> None:
        """Take the next numbers of the log for the rows.

        Raises:
            ValueError: the rows do not carry those numbers.
        """
        tail, expected = self.tail, self.tail.next
        if not self.rows:
            raise ValueError(f"nothing to write to the log of {tail.id}")
        for row in self.rows:
            if row.first != expected or row.last < row.first:
                raise ValueError(
                    f"entries {row.first}..{row.last} do not follow {expected - 1} in {tail.id}"
                )
            expected = row.last + 1
            self.size += len(row.body)
        tail.next = expected
        self.after_rest, tail.at_rest = tail.at_rest, False

    def seal(self) -> None:
        """Chain the rows to the end of the log. If they get lost, so is the tail."""
        tail = self.tail
        self.before = tail.end
        for row in self.rows:
            digest = forge(tail.end.hash, tail.id, row)
            tail.end = Link(row.last, digest)
            self.sealed.append((tail.no, row.first, row.last, row.body, digest))


def insert(database: sqlite3.Connection, writes: Sequence[Write]) -> None:
    """Insert what the sealed *writes* say, within the caller's transaction.

    Raises:
        StoreError: E-STO-008, a log that was at rest has moved since it was claimed.
        sqlite3.IntegrityError: an entry number is taken.
    """
    for write in writes:
        if write.after_rest and log_end(database, write.tail.no) != write.before:
            raise fence_lost(write.tail.id, write.before.last + 1)
    _insert_rows(database, [row for write in writes for row in write.sealed])
    for write in writes:
        if write.index is not None:
            database.execute(QUERIES["update_run"], asdict(write.index) | {"no": write.tail.no})
        if write.context is not None:
            database.execute(QUERIES["keep_context"], asdict(write.context))
        if write.settlement is not None:
            settle(database, write.settlement)


def _insert_rows(database: sqlite3.Connection, rows: list[SealedRow]) -> None:
    """Insert many rows a statement: each statement costs this thread its turn at the interpreter."""
    start = 0
    for size in _STATEMENT_ROWS:
        while len(rows) - start >= size:
            values = [value for row in rows[start : start + size] for value in row]
            database.execute(_INSERT_ROWS[size], values)
            start += size


def log_end(database: sqlite3.Connection, no: int) -> Link:
    """Return where the chain of run number *no* stands."""
    rows = database.execute(QUERIES["log_end"], {"no": no}).fetchall()
    return Link(*rows[0]) if rows else START
