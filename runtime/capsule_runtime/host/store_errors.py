"""Say in our words what SQLite or the kernel refused: one code, the path, what to do."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from capsule_runtime.errors import StoreError

DAMAGED = "E-STO-004"
FENCE_LOST = "E-STO-008"

_CLOSED = ("E-STO-001", "cannot be opened", "Check that the path exists and is yours.")
_FULL = ("E-STO-005", "has no room left", "Free some disk space, then run it again.")
_BROKEN = ("E-STO-005", "cannot be read or written", "Look for disk errors: dmesg.")
_READONLY = ("E-STO-006", "is read-only", "Make it writable, or point CAPSULE_STATE elsewhere.")
_LOCKED = ("E-STO-007", "is locked by another program", "Find it with: fuser -v")
_DAMAGED = (DAMAGED, "is damaged", "Run: capsule store check")

_SQLITE = {
    sqlite3.SQLITE_PERM: _CLOSED,
    sqlite3.SQLITE_CANTOPEN: _CLOSED,
    sqlite3.SQLITE_FULL: _FULL,
    sqlite3.SQLITE_IOERR: _BROKEN,
    sqlite3.SQLITE_NOMEM: _BROKEN,
    sqlite3.SQLITE_READONLY: _READONLY,
    sqlite3.SQLITE_BUSY: _LOCKED,
    sqlite3.SQLITE_LOCKED: _LOCKED,
    sqlite3.SQLITE_PROTOCOL: _LOCKED,
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_NOTADB: _DAMAGED,
}
_KERNEL = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EIO: _BROKEN,
    errno.EROFS: _READONLY,
}


def primary_code(error: sqlite3.Error) -> int | None:
    """Return SQLite's own code, or None when Python's wrapper raised it (then it is our bug)."""
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF


def from_sqlite(error: sqlite3.Error, path: Path) -> StoreError | None:
    """Return what *error* means for the database *path*, or None if it means a bug of ours."""
    meaning = _SQLITE.get(primary_code(error) or 0)
    return None if meaning is None else _store_error(meaning, path, str(error))


def from_kernel(error: OSError, path: Path) -> StoreError:
    """Return what *error* means for *path*."""
    meaning = _KERNEL.get(error.errno or 0, _CLOSED)
    # A directory that is there and refuses an entry is read-only to us, whatever the reason.
    if error.errno in (errno.EACCES, errno.EPERM) and os.path.isdir(path.parent):
        meaning = _READONLY
    return _store_error(meaning, path, os.strerror(error.errno or 0))


def locked(path: Path, seconds: float) -> StoreError:
    """Return the error for a lock that did not come free in *seconds*."""
    return _store_error(_LOCKED, path, f"no answer in {seconds:g} s")


def damaged(run: str, seq: int, flaw: str) -> StoreError:
    """Return the error for a log that cannot be trusted from entry *seq* on."""
    return StoreError(
        DAMAGED,
        f"the log of {run} is damaged at entry {seq}: {flaw}",
        "Run: capsule store check. Restore the database from a copy.",
    )


def fence_lost(run: str, seq: int) -> StoreError:
    """Return the error for an entry number that somebody else has already written."""
    return StoreError(
        FENCE_LOST,
        f"another driver wrote the log of {run}: entry {seq} is not ours to write",
        "This process no longer owns the run. Look at it with: capsule show",
    )


def not_indexed(run: str) -> StoreError:
    """Return the error for a run that was found before and is not there now."""
    return StoreError(DAMAGED, f"{run} is not in the index", "Run: capsule store rebuild")


def opened_readonly(path: Path) -> StoreError:
    """Return the error for a write through a store that was opened for reading."""
    return _store_error(_READONLY, path, "it was opened for reading only")


def writer_stopped(path: Path, why: str) -> StoreError:
    """Return the error for a writer that writes nothing any more."""
    return _store_error(_BROKEN, path, f"the writer stopped: {why}")


def concerns_all(error: sqlite3.Error | StoreError) -> bool:
    """Say whether *error* would meet every other write too, so that trying each is pointless."""
    if isinstance(error, StoreError):
        return error.code != FENCE_LOST
    return _SQLITE.get(primary_code(error) or 0, _FULL) is not _FULL


def explain_loss(error: sqlite3.Error | StoreError, run: str, seq: int, path: Path) -> StoreError:
    """Return why entry *seq* of *run* was not written."""
    if isinstance(error, StoreError):
        return error
    if primary_code(error) == sqlite3.SQLITE_CONSTRAINT and "log.run" in str(error):
        return fence_lost(run, seq)
    return from_sqlite(error, path) or _store_error(_BROKEN, path, f"entry {seq} of {run}: {error}")


@contextmanager
def reporting(path: Path) -> Generator[None]:
    """Translate what SQLite raises about *path*. Our own bugs pass as they are.

    Raises:
        StoreError: the database refused.
    """
    try:
        yield
    except sqlite3.Error as error:
        if (told := from_sqlite(error, path)) is None:
            raise
        raise told from error


def _store_error(meaning: tuple[str, str, str], path: Path, detail: str) -> StoreError:
    code, what, hint = meaning
    if meaning is _LOCKED:
        hint = f"{hint} {path}. A stopped program keeps its lock until it goes on or ends."
    return StoreError(code, f"{path} {what}: {detail}", hint)
