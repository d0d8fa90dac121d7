"""Open and close the connections of one store: who may write, who reads, and under which lock.

A commit must not meet a checkpoint of another process. SQLite checkpoints in two places: inside the
COMMIT of a writing connection, and when the last connection to the file closes. The first happens
under the commit lock because every commit does; `close` sees to the second.
"""

from __future__ import annotations

import sqlite3
from contextlib import ExitStack
from pathlib import Path

from msgspec import Struct

from capsule_runtime.errors import StoreError
from capsule_runtime.host.database import (
    connect_reader,
    connect_writer,
    migrate,
    require_current,
    require_local,
)
from capsule_runtime.host.locks import CommitLock
from capsule_runtime.host.private_files import make_private_directory
from capsule_runtime.host.statements import load_migrations
from capsule_runtime.host.store_errors import reporting


class WritingConnection(Struct, frozen=True):
    """The one connection of this store that writes, and the lock that each commit holds."""

    database: sqlite3.Connection
    lock: CommitLock


class Connections(Struct, frozen=True):
    """What a store has open. Without *writing* it is open for reading only."""

    reading: sqlite3.Connection
    writing: WritingConnection | None

    def close(self) -> None:
        """Close all, the last one under the commit lock."""
        if self.writing is None:
            self.reading.close()
            return
        database, lock = self.writing.database, self.writing.lock
        try:
            with lock.held():
                self.reading.close()
                database.close()
        except StoreError:
            # Somebody sits on the lock. While our reader is open the writer is not the last to go,
            # and a reader cannot checkpoint.
            database.close()
            self.reading.close()
        finally:
            lock.close()


def open_writable(state: Path) -> Connections:
    """Open the database in *state*, created and brought to our schema if need be.

    Raises:
        StoreError: it cannot be had; the code says why.
    """
    path = state / "capsule.db"
    make_private_directory(state)
    require_local(state)
    for name in ("supervisors", "runs"):
        make_private_directory(state / name)
    with ExitStack() as undo, reporting(path):
        lock = CommitLock(state / "commit.lock")
        undo.callback(lock.close)
        with lock.held(), ExitStack() as undo_first:
            database = connect_writer(path)
            undo_first.callback(database.close)
            migrate(database, load_migrations())
            reading = connect_reader(path)
            undo_first.pop_all()
        undo.pop_all()
    return Connections(reading, WritingConnection(database, lock))


def open_readonly(state: Path) -> Connections:
    """Open the database in *state* as it is.

    Raises:
        StoreError: it cannot be had; the code says why.
    """
    path = state / "capsule.db"
    require_local(state)
    with ExitStack() as undo, reporting(path):
        reading = connect_reader(path)
        undo.callback(reading.close)
        require_current(reading, load_migrations())
        undo.pop_all()
    return Connections(reading, None)
