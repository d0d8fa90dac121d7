"""Look into the database. One connection a process, whatever the number of followers.

A statement is finished before anybody awaits: an open cursor would keep the WAL from shrinking.
"""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path
from typing import Any

from capsule_runtime.core.chain import Row
from capsule_runtime.core.index import IndexRow
from capsule_runtime.errors import UsageError
from capsule_runtime.host.locks import is_free
from capsule_runtime.host.log_reading import trusted_rows
from capsule_runtime.host.rows import ContextRow
from capsule_runtime.host.statements import QUERIES
from capsule_runtime.host.store_errors import reporting

PREFIX_LIMIT = 50


class Reader:
    """What anybody may read, from any thread."""

    def __init__(self, state: Path, database: sqlite3.Connection) -> None:
        self.state = state
        self.path = state / "capsule.db"
        self._reading = database
        self._is_closed = False
        # Keeps two threads from using the one connection in the middle of each other's statement.
        self._one_at_a_time = threading.Lock()

    def read(self, run: str, after: int, limit_rows: int = 64) -> list[Row]:
        """Return the next rows of *run* with entries later than *after*.

        The first row may begin before that: `Row.since` cuts it.

        Raises:
            StoreError: E-STO-004, a row is not what was written.
        """
        values = {"run": run, "after": after, "limit": limit_rows}
        return trusted_rows(run, self._fetch("read_rows", values))

    def last_entry(self, run: str) -> int:
        """Return the number of the last entry of *run*."""
        found = self._fetch("last_entry", {"run": run})
        return int(found[0][0]) if found else 0

    def find(self, prefix: str) -> list[IndexRow]:
        """Return the runs whose id begins with *prefix*, at most 50."""
        return self._runs("runs_by_prefix", {"prefix": prefix, "limit": PREFIX_LIMIT})

    def runs(self, limit: int, live_only: bool = False) -> list[IndexRow]:
        """Return the newest runs, newest first."""
        return self._runs("newest_live_runs" if live_only else "newest_runs", {"limit": limit})

    def newest_run(self) -> IndexRow | None:
        """Return the run that was created last."""
        found = self.runs(1)
        return found[0] if found else None

    def live_runs_of(self, owner: str) -> list[IndexRow]:
        """Return the runs that *owner* has not finished, oldest first."""
        return self._runs("live_runs_of_owner", {"owner": owner})

    def live_runs_of_dead_owners(self) -> list[IndexRow]:
        """Return the runs that an owner left unfinished when it died, oldest first.

        An owner whose lock somebody took to act in its place does not count as dead.
        """
        runs = self._runs("owned_live_runs", {})
        dead = {owner for run in runs if (owner := run.owner) and is_free(self.owner_lock(owner))}
        return [run for run in runs if run.owner in dead]

    def context(self, name: str) -> ContextRow | None:
        """Return the context *name*."""
        found = self._fetch("context_by_name", {"name": name})
        return ContextRow(*found[0]) if found else None

    def request_taken(self, request: int) -> bool:
        """Say whether the owner of the run has taken *request*."""
        return bool(self._fetch("is_taken", {"id": request}) == [(1,)])

    def has_requests(self, owner: str) -> bool:
        """Say whether something waits for *owner*, which costs no write."""
        return bool(self._fetch("waiting_requests", {"owner": owner}))

    def data_version(self) -> int:
        """Return a number that changes with each commit of anybody else."""
        version: int = self._execute("pragma data_version", {})[0][0]
        return version

    def owner_lock(self, owner: str) -> Path:
        """Return the path of the lock that shows whether supervisor *owner* lives."""
        return self.state / "supervisors" / f"{owner}.lock"

    def audience(self, owner: str) -> Path:
        """Return where one tells supervisor *owner* which of its runs one follows."""
        return self.state / "supervisors" / f"{owner}.audience"

    def bell(self, run: str) -> Path:
        """Return the path of the bell of *run*."""
        return self.state / "runs" / run / "bell"

    def _runs(self, query: str, values: dict[str, Any]) -> list[IndexRow]:
        return [IndexRow(*row) for row in self._fetch(query, values)]

    def _fetch(self, query: str, values: dict[str, Any]) -> list[Any]:
        return self._execute(QUERIES[query], values)

    def _execute(self, statement: str, values: dict[str, Any]) -> list[Any]:
        if self._is_closed:
            raise UsageError(
                "E-USE-061", f"{self.path} is closed", "Read before the supervisor's block ends."
            )
        with self._one_at_a_time, reporting(self.path):
            return self._reading.execute(statement, values).fetchall()
