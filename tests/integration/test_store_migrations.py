"""The schema: made once, found again, refused when it is newer than this program."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from contextlib import closing
from pathlib import Path

import pytest

from capsule_runtime.errors import StoreError
from capsule_runtime.host.database import migrate, require_current
from capsule_runtime.host.statements import Migration, load_migrations, load_queries
from capsule_runtime.host.store import open_store
from support.stores import begin, read_all, run_id

FIRST = Migration("m001_first", "create table a (x); -- a; comment\ninsert into a values (1);")
SECOND = Migration(
    "m002_second",
    "create trigger t after insert on a begin insert into b values (1); end;\ncreate table b (x);",
)
BROKEN = Migration("m003_broken", "create table c (x);\ninsert into nowhere values (1);")


@pytest.fixture
def database(tmp_path: Path) -> Generator[sqlite3.Connection]:
    with closing(sqlite3.connect(tmp_path / "x.db", isolation_level=None)) as opened:
        yield opened


def applied(database: sqlite3.Connection) -> list[tuple[str, str]]:
    return database.execute("select name, sha256 from migrations order by name").fetchall()


def test_a_fresh_database_gets_all_migrations_in_order(database: sqlite3.Connection) -> None:
    migrate(database, [FIRST, SECOND])

    assert applied(database) == [(it.name, it.sha256) for it in (FIRST, SECOND)]
    assert database.execute("select * from a").fetchall() == [(1,)]


def test_a_migration_is_applied_once(database: sqlite3.Connection) -> None:
    migrate(database, [FIRST])
    migrate(database, [FIRST])
    migrate(database, [FIRST, SECOND])

    assert database.execute("select * from a").fetchall() == [(1,)]
    assert len(applied(database)) == 2


def test_a_migration_that_fails_leaves_nothing(database: sqlite3.Connection) -> None:
    migrate(database, [FIRST])

    with pytest.raises(sqlite3.OperationalError, match="nowhere"):
        migrate(database, [FIRST, BROKEN])

    assert applied(database) == [(FIRST.name, FIRST.sha256)]
    assert not database.execute("select 1 from sqlite_master where name = 'c'").fetchall()


@pytest.mark.parametrize(
    "other",
    [Migration("m002_newer", "select 1"), Migration("m001_first", FIRST.text + "-- changed")],
)
def test_a_database_of_another_program_is_refused(
    database: sqlite3.Connection, other: Migration
) -> None:
    migrate(database, [other])

    with pytest.raises(StoreError, match=f"has migration {other.name}.* knows m001_first") as told:
        migrate(database, [FIRST])

    assert told.value.code == "E-STO-003"


def test_a_database_that_lacks_a_migration_cannot_be_only_read(
    database: sqlite3.Connection,
) -> None:
    migrate(database, [FIRST])

    with pytest.raises(StoreError, match="lacks m002_second") as told:
        require_current(database, [FIRST, SECOND])

    assert told.value.code == "E-STO-006"


async def test_a_store_newer_than_the_program_is_refused_either_way(tmp_path: Path) -> None:
    open_store(tmp_path / "state").close()
    with closing(sqlite3.connect(tmp_path / "state" / "capsule.db")) as stranger, stranger:
        stranger.execute("insert into migrations values ('m999_future', 'abc', 'then')")

    for readonly in (False, True):
        with pytest.raises(StoreError, match="m999_future") as told:
            open_store(tmp_path / "state", readonly=readonly)
        assert told.value.code == "E-STO-003"


async def test_a_store_is_found_again_as_it_was(tmp_path: Path) -> None:
    async with open_store(tmp_path / "state") as store:
        await begin(store, 1)

    async with open_store(tmp_path / "state") as store:
        assert len(read_all(store, run_id(1))) == 1
        await begin(store, 2)


def test_the_migrations_of_this_program_are_numbered_without_gaps() -> None:
    names = [migration.name for migration in load_migrations()]

    assert [name[:4] for name in names] == [f"m{number:03}" for number in range(1, len(names) + 1)]


def test_queries_are_read_by_the_name_above_them(tmp_path: Path) -> None:
    path = tmp_path / "q.sql"
    path.write_text("-- about\n\n-- name: one\nselect 1;\n\n-- name: two\n-- why\nselect\n  2;\n")

    assert load_queries(path) == {"one": "select 1", "two": "-- why\nselect\n  2"}
