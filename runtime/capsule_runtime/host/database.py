"""Open the database file, with its settings and at the schema that this program knows."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path

from capsule_runtime.errors import StoreError
from capsule_runtime.host.filesystem import find_mount
from capsule_runtime.host.private_files import open_private_file
from capsule_runtime.host.statements import Migration, split_statements
from capsule_runtime.host.store_errors import from_kernel

STRANGER_SECONDS = 5.0
"""How long SQLite waits for programs that do not know our commit lock."""

# The order matters: a page size is only taken before the journal mode is set.
_SETTINGS = (
    "page_size = 4096",
    "journal_mode = wal",
    "synchronous = full",
    "wal_autocheckpoint = 1000",
    "journal_size_limit = 67108864",
)


def require_local(directory: Path) -> None:
    """Refuse *directory* when other machines may write to its file system.

    Raises:
        StoreError: E-STO-002.
    """
    try:
        mount = find_mount(directory)
    except OSError as error:
        raise from_kernel(error, directory) from error
    if mount is not None and mount.is_network:
        raise StoreError(
            "E-STO-002",
            f"{directory} is on a network file system ({mount.type} at {mount.point})",
            "Point CAPSULE_STATE at a directory on a local disk.",
        )


def connect_writer(path: Path) -> sqlite3.Connection:
    """Open *path* for writing, created if need be. The caller holds the commit lock."""
    # SQLite takes the mode of its other files from this one. Only a file that is not there may be
    # opened here: closing a second descriptor would drop SQLite's locks.
    if not path.exists():
        os.close(open_private_file(path))
    database = _connect(path, "rw")
    try:
        for setting in _SETTINGS:
            answer = database.execute(f"pragma {setting}").fetchall()
            # SQLite does not raise where it cannot share memory: it stays in another mode.
            if setting == "journal_mode = wal" and answer != [("wal",)]:
                raise from_kernel(OSError(errno.EOPNOTSUPP, "no shared memory"), path)
    except BaseException:
        database.close()
        raise
    return database


def connect_reader(path: Path) -> sqlite3.Connection:
    """Open *path* for reading. Such a connection never checkpoints, not even when it closes."""
    # SQLite wants to make its lock file even to read, unless told that nobody writes.
    if not path.with_name(f"{path.name}-wal").exists() and _is_on_readonly_disk(path):
        return _connect(path, "ro&immutable=1")
    return _connect(path, "ro")


def migrate(database: sqlite3.Connection, known: Sequence[Migration]) -> None:
    """Bring *database* to the schema of the *known* migrations, each in its own transaction.

    Raises:
        StoreError: E-STO-003, the database is newer than this program.
    """
    for migration in _missing(database, known):
        _apply(database, migration)


def require_current(database: sqlite3.Connection, known: Sequence[Migration]) -> None:
    """Refuse a *database* that has not all the *known* migrations, and only those.

    Raises:
        StoreError: E-STO-003, it is newer than this program; E-STO-006, it is older.
    """
    if missing := _missing(database, known):
        raise StoreError(
            "E-STO-006",
            f"the database lacks {', '.join(it.name for it in missing)} and is open for reading",
            "Let this version of capsule write to it once: capsule store rebuild",
        )


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    return sqlite3.connect(
        f"{path.as_uri()}?mode={mode}",
        uri=True,
        timeout=STRANGER_SECONDS,
        isolation_level=None,
        check_same_thread=False,
    )


def _is_on_readonly_disk(path: Path) -> bool:
    return bool(os.statvfs(path.parent).f_flag & os.ST_RDONLY)


def _missing(database: sqlite3.Connection, known: Sequence[Migration]) -> list[Migration]:
    digests = {migration.name: migration.sha256 for migration in known}
    applied = _applied(database)
    for name, digest in applied.items():
        if digests.get(name) != digest:
            choices = ", ".join(f"{name} ({sha[:12]})" for name, sha in digests.items())
            raise StoreError(
                "E-STO-003",
                f"the database has migration {name} ({digest[:12]}); this program knows {choices}",
                "A newer program made it: install that version, or use another CAPSULE_STATE.",
            )
    return [migration for migration in known if migration.name not in applied]


def _applied(database: sqlite3.Connection) -> dict[str, str]:
    if not database.execute("select 1 from sqlite_master where name = 'migrations'").fetchall():
        return {}
    return dict(database.execute("select name, sha256 from migrations order by name").fetchall())


def _apply(database: sqlite3.Connection, migration: Migration) -> None:
    database.execute("begin immediate")
    try:
        database.execute(
            "create table if not exists migrations"
            " (name text primary key, sha256 text not null, applied_at text not null)"
        )
        for statement in split_statements(migration.text):
            database.execute(statement)
        database.execute(
            "insert into migrations values (?, ?, strftime('%Y-%m-%dT%H:%M:%SZ', 'now'))",
            (migration.name, migration.sha256),
        )
        database.execute("commit")
    except BaseException:
        if database.in_transaction:
            database.execute("rollback")
        raise
