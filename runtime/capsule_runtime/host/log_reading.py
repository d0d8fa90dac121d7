"""Read rows of a log and trust none whose hash does not fit."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator

from capsule_runtime.core.chain import START, Link, Row, find_flaw
from capsule_runtime.host.statements import QUERIES
from capsule_runtime.host.store_errors import damaged

Fetched = tuple[int, int, bytes, bytes, int, bytes]
"""A row's numbers, body and hash; the last number and the hash of the row before it."""


def trusted_rows(run: str, fetched: Iterable[Fetched]) -> list[Row]:
    """Return the *fetched* rows of *run*.

    Raises:
        StoreError: E-STO-004, one of them is not what was written.
    """
    rows: list[Row] = []
    for first, last, body, stored, last_before, hash_before in fetched:
        row = Row(first, last, body)
        if (flaw := find_flaw(Link(last_before, hash_before), run, row, stored)) is not None:
            raise damaged(run, first, flaw)
        rows.append(row)
    return rows


def last_link(database: sqlite3.Connection, no: int, run: str) -> Link:
    """Return where the log of *run*, number *no*, ends.

    Raises:
        StoreError: E-STO-004, its last row is not what was written.
    """
    fetched: list[Fetched] = database.execute(QUERIES["last_row"], {"no": no}).fetchall()
    rows = trusted_rows(run, fetched)
    return Link(rows[-1].last, fetched[-1][3]) if rows else START


def whole_log(database: sqlite3.Connection, no: int) -> Iterator[tuple[Row, bytes]]:
    """Yield all rows of run number *no* with their hashes, whether they fit or not."""
    for first, last, body, stored in database.execute(QUERIES["whole_log"], {"no": no}):
        yield Row(first, last, body), stored
