"""Load SQL from the files beside this module: named queries, and migrations in their order."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from msgspec import Struct

SQL = Path(__file__).parent / "sql"
_HEADING = "-- name: "


class Migration(Struct, frozen=True):
    """One step of the schema. Once released, its text never changes."""

    name: str
    text: str

    @property
    def sha256(self) -> str:
        """Return the digest that the database remembers."""
        return sha256(self.text.encode()).hexdigest()


def load_queries(path: Path) -> dict[str, str]:
    """Return the queries of *path* by the name in the heading above each."""
    queries: dict[str, str] = {}
    for part in path.read_text().split(_HEADING)[1:]:
        name, _, text = part.partition("\n")
        queries[name.strip()] = text.strip().rstrip(";")
    return queries


def load_migrations(directory: Path = SQL) -> list[Migration]:
    """Return the migrations of *directory* in the order of their names."""
    paths = sorted(directory.glob("m[0-9][0-9][0-9]_*.sql"))
    return [Migration(path.stem, path.read_text()) for path in paths]


def split_statements(text: str) -> Iterator[str]:
    """Yield the statements of *text*. `executescript` would commit the transaction around it."""
    statement = ""
    for line in text.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
    if statement.strip():
        yield statement


QUERIES = load_queries(SQL / "queries.sql")
"""The queries of the store by name."""
