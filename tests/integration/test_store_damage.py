"""Logs that somebody altered, the check that finds it, and the index made anew."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from capsule_runtime.core.chain import Row
from capsule_runtime.errors import StoreError
from capsule_runtime.host.rows import Problem
from capsule_runtime.host.store import open_store
from support.stores import begin, context_of, fact, fold, frames, index_of, read_all, run_id


@pytest.fixture
async def state(tmp_path: Path) -> Path:
    """Two runs of five rows: a fact, then frames 2, 3-5, 6, 7."""
    async with open_store(tmp_path / "state") as store:
        for number in (1, 2):
            tail = await begin(store, number)
            await store.commit(tail, [frames(2), frames(3, 3, "some text"), frames(6), frames(7)])
    return tmp_path / "state"


@contextmanager
def stranger(state: Path) -> Generator[sqlite3.Connection]:
    with closing(sqlite3.connect(state / "capsule.db")) as database, database:
        yield database


def alter(database: sqlite3.Connection) -> None:
    database.execute(
        "update log set body = cast(replace(body, 'some', 'SOME') as blob)"
        " where run = 1 and seq = 3"
    )


def renumber(database: sqlite3.Connection) -> None:
    database.execute("update log set last = 4 where run = 1 and seq = 3")


def remove(database: sqlite3.Connection) -> None:
    database.execute("delete from log where run = 1 and seq = 2")


def remove_the_first(database: sqlite3.Connection) -> None:
    database.execute("delete from log where run = 1 and seq <= 2")


def cut(database: sqlite3.Connection) -> None:
    database.execute("update log set body = substr(body, 1, 30) where run = 1 and seq = 3")


def empty(database: sqlite3.Connection) -> None:
    database.execute("update log set body = x'' where run = 1 and seq = 3")


def swap(database: sqlite3.Connection) -> None:
    """Reorder: row 3-5 and what came before it change places, numbers made to fit."""
    database.execute("update log set seq = 99 where run = 1 and seq = 2")
    database.execute("update log set seq = 2, last = 4 where run = 1 and seq = 3")
    database.execute("update log set seq = 5, last = 5 where run = 1 and seq = 99")


def splice(database: sqlite3.Connection) -> None:
    """Put the other run's row, with its hash, in the place of this one's."""
    database.execute("delete from log where run = 1 and seq = 3")
    database.execute(
        "insert into log select 1, seq, last, body, hash from log where run = 2 and seq = 3"
    )


def forge_without_the_chain(database: sqlite3.Connection) -> None:
    """Exchange a row and its hash for those of the row after it."""
    database.execute(
        "update log set (body, hash) = (select body, hash from log where run = 1 and seq = 6)"
        " where run = 1 and seq = 3"
    )


@pytest.mark.parametrize(
    ("damage", "seq"),
    [
        (alter, 3),
        (renumber, 3),
        (remove, 3),
        (remove_the_first, 3),
        (cut, 3),
        (empty, 3),
        (swap, 2),
        (splice, 3),
        (forge_without_the_chain, 3),
    ],
)
async def test_reading_a_damaged_log_names_the_run_and_the_entry(
    state: Path, damage: Callable[[sqlite3.Connection], None], seq: int
) -> None:
    with stranger(state) as database:
        damage(database)

    with open_store(state, readonly=True) as store:
        with pytest.raises(
            StoreError, match=f"log of {run_id(1)} is damaged at entry {seq}"
        ) as told:
            read_all(store, run_id(1))
        problems = store.check()
        neighbour = read_all(store, run_id(2))

    assert told.value.code == "E-STO-004"
    assert (problems[0].run, problems[0].seq) == (run_id(1), seq)
    assert {problem.run for problem in problems} == {run_id(1)}
    assert neighbour[-1].last == 7


async def test_a_log_that_is_whole_has_no_problem(state: Path) -> None:
    with open_store(state, readonly=True) as store:
        assert store.check(fold) == []


async def test_rows_cut_off_the_end_show_in_the_index(state: Path) -> None:
    async with open_store(state) as store:
        tail = await store.claim(run_id(1))
        ended = index_of(1, "ended", None)
        await store.commit(tail, [fact(8, ended), frames(9)], ended)
    with stranger(state) as database:
        database.execute("delete from log where run = 1 and seq >= 8")

    with open_store(state, readonly=True) as store:
        problems = store.check(fold)

    assert [(problem.run, problem.seq) for problem in problems] == [(run_id(1), 7)]
    assert "index says something else" in problems[0].message


async def test_the_end_of_a_damaged_log_cannot_be_claimed(state: Path) -> None:
    with stranger(state) as database:
        database.execute("update log set body = x'0a' where run = 1 and seq = 7")

    async with open_store(state) as store:
        with pytest.raises(StoreError, match=f"{run_id(1)} is damaged at entry 7"):
            await store.claim(run_id(1))


async def test_a_row_that_miscounts_its_lines_is_a_problem(tmp_path: Path) -> None:
    async with open_store(tmp_path / "state") as store:
        tail = await begin(store, 1)
        await store.commit(tail, [Row(2, 3, frames(2).body)])
        problems = store.check()

    assert problems == [Problem(run_id(1), 2, "it holds 1 lines and says 2")]


async def test_a_log_without_index_and_an_index_without_log_are_problems(state: Path) -> None:
    with stranger(state) as database:
        database.execute("delete from runs where no = 1")
        database.execute("delete from log where run = 2")

    with open_store(state, readonly=True) as store:
        problems = store.check()

    assert [problem.run for problem in problems] == [None, run_id(2)]
    assert problems[0].message.startswith("log 1 is not in the index")
    assert problems[1].message == "its log is empty"


async def test_damaged_pages_are_a_problem_and_not_a_crash(state: Path) -> None:
    with stranger(state) as database:
        (root,) = database.execute(
            "select rootpage from sqlite_master where name = 'log'"
        ).fetchone()
    pages = bytearray((state / "capsule.db").read_bytes())
    start = (root - 1) * 4096
    pages[start : start + 64] = b"\xff" * 64
    (state / "capsule.db").write_bytes(pages)

    with open_store(state, readonly=True) as store:
        problems = store.check()

    assert problems
    assert problems[0].run is None


async def test_a_file_that_is_no_database_is_damaged(state: Path) -> None:
    (state / "capsule.db").write_bytes(b"not a database, certainly" * 500)

    with pytest.raises(StoreError, match=r"capsule\.db is damaged") as told:
        open_store(state)

    assert told.value.code == "E-STO-004"
    assert "capsule store check" in told.value.hint


async def test_the_index_is_rebuilt_from_the_logs(state: Path) -> None:
    async with open_store(state) as store:
        tail = await store.claim(run_id(2))
        ended = replace(index_of(2, "ended", None), outcome="failed", ended_at="later")
        kept = replace(context_of(2), session="s-2", memory=None)
        await store.commit(tail, [fact(8, ended, kept), frames(9)], ended, context=kept)
        before = store.runs(10), store.context("context-1"), store.context("context-2")
    with stranger(state) as database:
        database.execute("delete from runs")
        database.execute("delete from contexts")

    async with open_store(state) as store:
        count = await store.rebuild(fold)
        after = store.runs(10), store.context("context-1"), store.context("context-2")
        problems = store.check(fold)
        tail = await store.claim(run_id(1))
        await store.commit(tail, [frames(8)])

    assert count == 2
    assert after == before
    assert problems == []


async def test_a_rebuilt_index_does_not_give_a_number_twice(state: Path) -> None:
    async with open_store(state) as store:
        await store.rebuild(fold)
        await begin(store, 3)

        assert len(read_all(store, run_id(3))) == 1
        assert store.check(fold) == []
