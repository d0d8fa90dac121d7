"""What is written beside the logs of running runs. Each function is one write transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

from msgspec import Struct

from capsule_runtime.core.ceilings import DayReached
from capsule_runtime.core.chain import START, Row
from capsule_runtime.core.day_share import Share
from capsule_runtime.core.index import IndexRow
from capsule_runtime.core.setting import difference
from capsule_runtime.host.bell import open_bell, remove_bell
from capsule_runtime.host.log_reading import last_link, whole_log
from capsule_runtime.host.log_tail import LogTail, Write, insert
from capsule_runtime.host.reservations import Claim, exhausted, reserve
from capsule_runtime.host.rows import (
    ContextBusy,
    ContextDiffers,
    ContextRow,
    Fold,
    Folded,
    Request,
)
from capsule_runtime.host.statements import QUERIES
from capsule_runtime.host.store_errors import not_indexed
from capsule_runtime.host.writer import Begin


class NewRun(Struct, frozen=True):
    """A run that does not exist yet: its index row, its first rows, its context and its claim."""

    index: IndexRow
    rows: Sequence[Row]
    context: ContextRow | None
    claim: Claim | None = None


def create_run(
    begin: Begin, bell: Path, new: NewRun
) -> LogTail | ContextBusy | ContextDiffers | DayReached:
    """Write the first rows of a run, unless its context is taken or the day is used up."""
    with ExitStack() as undo:
        fd = open_bell(bell)
        undo.callback(remove_bell, fd, bell)
        with begin() as database:
            if (refusal := _find_refusal(database, new)) is not None:
                return refusal
            tail = _insert_run(database, fd, new)
        undo.pop_all()
    return tail


def reserve_more(begin: Begin, claim: Claim) -> Share:
    """Reserve more of a day for a run."""
    with begin() as database:
        return reserve(database, claim)


def claim_run(begin: Begin, bell: Path, run: str) -> LogTail:
    """Return the end of the log of *run*, which is at rest.

    Raises:
        StoreError: E-STO-004, the end of the log is damaged.
    """
    with begin() as database:
        no = _find_number(database, run)
        end = last_link(database, no, run)
    return LogTail(no, run, end.last + 1, end, open_bell(bell), at_rest=True, is_claimed=True)


def ask(begin: Begin, request: Request) -> int:
    """Leave *request* for the owner of its run. Return the id it got."""
    with begin() as database:
        no = _find_number(database, request.run)
        values = {"no": no, "verb": request.verb, "body": request.body}
        cursor = database.execute(
            QUERIES["insert_request"], values | {"asked_at": request.asked_at}
        )
        assert cursor.lastrowid is not None
        return cursor.lastrowid


def take_requests(begin: Begin, owner: str, taken_at: str) -> list[Request]:
    """Take what waits for the runs of *owner*: each request is given once."""
    with begin() as database:
        found = database.execute(QUERIES["waiting_requests"], {"owner": owner}).fetchall()
        requests = [Request(*row) for row in found]
        database.executemany(
            QUERIES["mark_taken"], [{"id": it.id, "taken_at": taken_at} for it in requests]
        )
    return requests


def rebuild(begin: Begin, fold: Fold) -> int:
    """Write the index anew from the logs. Return the number of runs."""
    with begin() as database:
        numbers = [no for (no,) in database.execute(QUERIES["logged_numbers"]).fetchall()]
        found = [(no, fold(_rows(database, no))) for no in numbers]
        database.execute(QUERIES["forget_runs"])
        database.execute(QUERIES["forget_contexts"])
        for no, folded in found:
            _insert_index(database, no, folded)
    return len(found)


def _find_refusal(
    database: sqlite3.Connection, new: NewRun
) -> ContextBusy | ContextDiffers | DayReached | None:
    names = {"context": new.index.context, "name": new.index.context}
    for (run,) in database.execute(QUERIES["live_run_of_context"], names).fetchall():
        return ContextBusy(run)
    for row in database.execute(QUERIES["context_by_name"], names).fetchall():
        found = ContextRow(*row)
        if new.context is None or _differs(found, new.context):
            return ContextDiffers(found)
    return None if new.claim is None else exhausted(database, new.claim)


def _differs(found: ContextRow, mine: ContextRow) -> bool:
    is_same = (found.uuid, found.driver) == (mine.uuid, mine.driver)
    return not is_same or difference(found.setting, mine.setting) is not None


def _insert_run(database: sqlite3.Connection, bell: int, new: NewRun) -> LogTail:
    no = _insert_index(database, None, Folded(new.index, new.context))
    tail = LogTail(no, new.index.id, 1, START, bell, at_rest=False)
    write = Write(tail, new.rows, None, None, lambda _: None)
    write.reserve()
    write.seal()
    insert(database, [write])
    if new.claim is not None:
        tail.share = reserve(database, new.claim)
    return tail


def _insert_index(database: sqlite3.Connection, no: int | None, folded: Folded) -> int:
    cursor = database.execute(QUERIES["insert_run"], asdict(folded.index) | {"no": no})
    assert cursor.lastrowid is not None
    if folded.context is not None:
        database.execute(QUERIES["keep_context"], asdict(folded.context))
    return cursor.lastrowid


def _find_number(database: sqlite3.Connection, run: str) -> int:
    for (no,) in database.execute(QUERIES["run_number"], {"run": run}).fetchall():
        found: int = no
        return found
    raise not_indexed(run)


def _rows(database: sqlite3.Connection, no: int) -> Iterator[Row]:
    for row, _ in whole_log(database, no):
        yield row
