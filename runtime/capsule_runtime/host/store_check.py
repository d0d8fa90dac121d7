"""Check a whole database: its pages, each log's chain, each row's count, and the index."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

from capsule_runtime.core.chain import START, Link, Row, find_flaw, find_miscount
from capsule_runtime.core.index import IndexRow
from capsule_runtime.errors import StoreError
from capsule_runtime.host.database import connect_reader
from capsule_runtime.host.log_reading import whole_log
from capsule_runtime.host.rows import Fold, Problem
from capsule_runtime.host.statements import QUERIES
from capsule_runtime.host.store_errors import reporting


def check_store(path: Path, fold: Fold | None) -> list[Problem]:
    """Return what is wrong with the database *path*. With *fold*, compare the index to the logs.

    Raises:
        StoreError: the database cannot be opened.
    """
    # A connection of its own: this reads for long, and others have better to do than wait.
    with reporting(path):
        database = connect_reader(path)
    try:
        return list(_problems(database, fold))
    except sqlite3.DatabaseError as error:
        return [Problem(None, None, f"it cannot be read to its end: {error}")]
    finally:
        database.close()


def _problems(database: sqlite3.Connection, fold: Fold | None) -> Iterator[Problem]:
    for (said,) in database.execute("pragma quick_check").fetchall():
        if said != "ok":
            yield Problem(None, None, said)
    numbers = database.execute(QUERIES["known_numbers"]).fetchall()
    for (no,) in numbers:
        # The index and the log of a run that lives must be seen at the same moment.
        database.execute("begin")
        yield from _problems_of_run(database, no, fold)
        database.execute("commit")


def _problems_of_run(database: sqlite3.Connection, no: int, fold: Fold | None) -> Iterator[Problem]:
    found = database.execute(QUERIES["run_by_number"], {"no": no}).fetchall()
    if not found:
        yield Problem(None, None, f"log {no} is not in the index; run: capsule store rebuild")
        return
    index = IndexRow(*found[0])
    flaws = list(_flaws(database, no, index.id))
    yield from flaws
    if fold is not None and not flaws:
        yield from _stale_index(database, no, index, fold)


def _flaws(database: sqlite3.Connection, no: int, run: str) -> Iterator[Problem]:
    before = START
    for row, stored in whole_log(database, no):
        for flaw in (find_flaw(before, run, row, stored), find_miscount(row)):
            if flaw is not None:
                yield Problem(run, row.first, flaw)
        # Go on from what is stored: one bad row is one problem, not one for each row after it.
        before = Link(row.last, stored)
    if before == START:
        yield Problem(run, None, "its log is empty")


def _stale_index(
    database: sqlite3.Connection, no: int, index: IndexRow, fold: Fold
) -> Iterator[Problem]:
    rows: list[Row] = [row for row, _ in whole_log(database, no)]
    try:
        is_stale = bool(rows) and fold(rows).index != index
    except StoreError as flaw:
        yield Problem(index.id, None, flaw.message)
        return
    if is_stale:
        said = "the index says something else than the log; run: capsule store rebuild"
        yield Problem(index.id, rows[-1].last, said)
