"""The writer thread: groups, losses, cancellation."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import cast

import anyio
import anyio.to_thread
import pytest

from capsule_runtime.core.chain import Row
from capsule_runtime.errors import StoreError
from capsule_runtime.host.locks import CommitLock
from capsule_runtime.host.log_tail import LogTail
from capsule_runtime.host.statements import QUERIES
from capsule_runtime.host.store import Store, open_store
from support.stores import begin, fact, frames, index_of, read_all, run_id

NAMES = ("no", "owner", "context", "run", "after", "limit", "prefix")
PARAMETERS: dict[str, None] = dict.fromkeys(NAMES)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncGenerator[Store]:
    async with open_store(tmp_path / "state") as opened:
        yield opened


@contextmanager
def writer_held_up(state: Path) -> Generator[None]:
    """Hold the commit lock as another process would, so that the writer's queue fills."""
    lock = CommitLock(state / "commit.lock")
    try:
        with lock.held():
            yield
    finally:
        lock.close()


def wal_frames(state: Path) -> int:
    return (state / "capsule.db-wal").stat().st_size // 4120


async def test_what_many_runs_have_queued_is_one_commit(store: Store) -> None:
    tails = [await begin(store, number) for number in range(1, 201)]
    before = wal_frames(store.state)
    told: list[StoreError | None] = []
    all_told = anyio.Event()

    def done(error: StoreError | None) -> None:
        told.append(error)
        if len(told) == len(tails):
            all_told.set()

    with writer_held_up(store.state):
        for tail in tails:
            store.append(tail, [frames(2)], None, done)
    await all_told.wait()

    assert told == [None] * 200
    assert {store.read(run_id(number), 1)[0].first for number in range(1, 201)} == {2}
    # Each commit writes at least two pages: 200 of them would be 400.
    assert wal_frames(store.state) - before < 60


async def test_what_is_appended_together_reaches_the_writer_as_one_piece(store: Store) -> None:
    tails = [await begin(store, number) for number in (1, 2)]
    told: list[StoreError | None] = []

    with store.together():
        for tail in tails:
            store.append(tail, [frames(2)], None, told.append)
        with open_store(store.state, readonly=True) as others:
            seen_by_others = [others.read(run_id(number), 1) for number in (1, 2)]
    await store.commit(tails[0], [frames(3)])

    assert seen_by_others == [[], []]
    assert told == [None, None]
    assert [read_all(store, run_id(number))[-1].last for number in (1, 2)] == [3, 2]


async def test_a_tail_given_back_inside_a_piece_is_written_first(store: Store) -> None:
    tail = await begin(store, 1)
    told: list[StoreError | None] = []

    with store.together():
        store.append(tail, [frames(2)], None, told.append)
        store.release(tail)
    await begin(store, 2)

    assert told == [None]
    assert read_all(store, run_id(1))[-1].last == 2


async def test_rows_of_one_append_are_all_there_or_none(store: Store) -> None:
    tail = await begin(store, 1)
    stale = await store.claim(run_id(1))
    await store.commit(tail, [frames(2)])

    with pytest.raises(StoreError):
        await store.commit(stale, [frames(2), frames(3), frames(4)], index_of(1, "ended"))

    assert read_all(store, run_id(1))[-1].last == 2
    assert store.find(run_id(1)) == [index_of(1)]


async def test_an_occupied_number_is_refused_and_the_log_stays_as_it_was(store: Store) -> None:
    tail = await begin(store, 1)
    stale = await store.claim(run_id(1))
    await store.commit(tail, [frames(2, 1, "first")])

    with pytest.raises(StoreError, match=f"wrote the log of {run_id(1)}: entry 2") as lost:
        await store.commit(stale, [frames(2, 1, "second")])

    assert lost.value.code == "E-STO-008"
    assert read_all(store, run_id(1))[1:] == [frames(2, 1, "first")]


async def test_an_owner_that_lost_its_run_collides_at_its_next_entry(store: Store) -> None:
    """The fence holds for blocks: both go on from the same number."""
    owner = await begin(store, 1)
    await store.commit(owner, [frames(2, 10)])
    recovery = await store.claim(run_id(1))
    await store.commit(recovery, [fact(12, index_of(1)), frames(13)])

    with pytest.raises(StoreError) as lost:
        await store.commit(owner, [frames(12, 50)])

    assert lost.value.code == "E-STO-008"
    assert read_all(store, run_id(1))[-1] == frames(13)


async def test_a_lost_fence_hurts_only_its_run(store: Store) -> None:
    tails = [await begin(store, number) for number in range(1, 201)]
    thief = await store.claim(run_id(100))
    await store.commit(thief, [frames(2, 1, "thief")])
    told: dict[str, StoreError | None] = {}
    all_told = anyio.Event()

    def report(tail: LogTail) -> None:
        def done(error: StoreError | None) -> None:
            told[tail.id] = error
            if len(told) == len(tails):
                all_told.set()

        store.append(tail, [frames(2)], None, done)

    with writer_held_up(store.state):
        for tail in tails:
            report(tail)
    await all_told.wait()

    lost = {run: error.code for run, error in told.items() if error is not None}
    assert lost == {run_id(100): "E-STO-008"}
    assert all(
        store.read(run_id(number), 1) == [frames(2)] for number in range(1, 201) if number != 100
    )
    assert store.check() == []


async def test_after_a_loss_nothing_of_the_run_is_written_any_more(store: Store) -> None:
    tail = await begin(store, 1)
    thief = await store.claim(run_id(1))
    await store.commit(thief, [frames(2)])
    told: list[StoreError | None] = []

    with writer_held_up(store.state):
        for _ in range(3):
            store.append(tail, [frames(tail.next)], index_of(1, "ended"), told.append)
    with pytest.raises(StoreError) as lost:
        await store.commit(tail, [frames(tail.next)])

    assert [error.code for error in told if error] == ["E-STO-008"] * 3
    assert lost.value.code == "E-STO-008"
    assert "entry 2" in lost.value.message
    assert read_all(store, run_id(1))[-1].last == 2
    assert store.find(run_id(1)) == [index_of(1)]


async def test_of_two_appends_in_a_group_the_one_before_the_loss_stands(store: Store) -> None:
    tail = await begin(store, 1)
    with sqlite3.connect(store.path) as stranger:
        stranger.execute("insert into log values (1, 3, 3, x'0a', zeroblob(32))")
    stranger.close()
    told: list[StoreError | None] = []
    bystander = await begin(store, 2)

    with writer_held_up(store.state):
        store.append(bystander, [frames(2)], None, told.append)
        store.append(tail, [frames(2)], None, told.append)
        store.append(tail, [frames(3)], None, told.append)
    await store.commit(bystander, [frames(3)])

    assert [error.code if error else None for error in told] == [None, None, "E-STO-008"]
    assert store.read(run_id(1), 1, limit_rows=1) == [frames(2)]


async def test_a_log_at_rest_must_not_have_moved_since_it_was_claimed(store: Store) -> None:
    tail = await begin(store, 1)
    await store.commit(tail, [frames(2), frames(3)])
    claimed = await store.claim(run_id(1))
    with sqlite3.connect(store.path) as stranger:
        stranger.execute("delete from log where seq = 3")
    stranger.close()

    with pytest.raises(StoreError, match="entry 4") as lost:
        await store.commit(claimed, [frames(4)])

    assert lost.value.code == "E-STO-008"
    assert read_all(store, run_id(1))[-1].last == 2


async def test_of_fifty_racing_claims_one_wins(tmp_path: Path, store: Store) -> None:
    await begin(store, 1)
    stores = [open_store(store.state) for _ in range(50)]
    tails = [await one.claim(run_id(1)) for one in stores]
    results: list[str] = []

    async def append(racer: Store, tail: LogTail) -> None:
        try:
            await racer.commit(tail, [frames(2, 1, str(id(racer)))])
            results.append("won")
        except StoreError as error:
            results.append(error.code)

    async with anyio.create_task_group() as group:
        for racer, tail in zip(stores, tails, strict=True):
            group.start_soon(append, racer, tail)
    for racer in stores:
        await racer.aclose()

    assert sorted(results) == ["E-STO-008"] * 49 + ["won"]
    assert read_all(store, run_id(1))[-1].last == 2
    assert store.check() == []


async def test_to_cancel_the_wait_does_not_cancel_the_commit(store: Store) -> None:
    tail = await begin(store, 1)
    with anyio.CancelScope() as scope:
        scope.cancel()
        await store.commit(tail, [frames(2)])

    await store.commit(tail, [frames(3)])

    assert scope.cancelled_caught
    assert [row.first for row in read_all(store, run_id(1))] == [1, 2, 3]


async def test_a_cancelled_creation_still_hands_over_the_run(store: Store) -> None:
    tails: list[LogTail] = []
    with anyio.CancelScope() as scope:
        scope.cancel()
        tails.append(await begin(store, 1))

    await store.commit(tails[0], [frames(2)])
    assert read_all(store, run_id(1))[-1].last == 2


async def test_callers_are_told_on_their_own_thread_in_order(store: Store) -> None:
    tail = await begin(store, 1)
    told: list[tuple[int, int]] = []

    def tell(number: int) -> Callable[[object], None]:
        return lambda _: told.append((number, threading.get_ident()))

    for number in range(2, 50):
        store.append(tail, [frames(number)], None, tell(number))
    await store.commit(tail, [frames(50)])

    assert told == [(number, threading.get_ident()) for number in range(2, 50)]


async def test_an_error_of_the_fold_reaches_the_caller_and_changes_nothing(store: Store) -> None:
    await begin(store, 1)

    def broken_fold(rows: object) -> object:
        raise KeyError("not known")

    with pytest.raises(KeyError, match="not known"):
        await store.rebuild(broken_fold)  # type: ignore[arg-type]  # never returns

    assert store.find(run_id(1)) == [index_of(1)]
    await store.commit(await store.claim(run_id(1)), [frames(2)])


async def test_a_bug_in_the_writer_is_told_to_all_who_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody may wait for a thread that is gone; the bug itself must not vanish either."""
    surfaced: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", surfaced.append)
    store = open_store(tmp_path / "state")
    tail, bystander = await begin(store, 1), await begin(store, 2)
    told: list[StoreError | None] = []
    impossible = Row(2, 2, cast(bytes, "text"))

    store.append(tail, [impossible], None, told.append)
    for _ in range(3):
        with pytest.raises(StoreError, match="the writer stopped"):
            await store.commit(bystander, [frames(bystander.next)])
    with pytest.raises(StoreError, match="the writer stopped"):
        await store.claim(run_id(1))
    await store.aclose()

    assert [error.code for error in told if error] == ["E-STO-005"]
    assert [it.exc_type for it in surfaced] == [TypeError]


async def test_threads_may_read_at_the_same_time(store: Store) -> None:
    tail = await begin(store, 1)
    await store.commit(tail, [frames(seq) for seq in range(2, 300)])
    found: list[int] = []

    def read() -> None:
        found.append(sum(row.last - row.first + 1 for row in read_all(store, run_id(1))))

    async with anyio.create_task_group() as group:
        for _ in range(20):
            group.start_soon(anyio.to_thread.run_sync, read)
        for seq in range(300, 400):
            await store.commit(tail, [frames(seq)])

    assert len(found) == 20
    assert all(299 <= count <= 399 for count in found)


@pytest.mark.parametrize(
    ("query", "index"),
    [
        ("owned_live_runs", "runs_by_live_owner"),
        ("waiting_requests", "runs_by_live_owner"),
        ("waiting_requests", "requests_waiting"),
        ("live_run_of_context", "runs_by_live_context"),
        ("newest_live_runs", "runs_by_live_context"),
        ("log_end", "sqlite_autoindex_log_1"),
        ("read_rows", "sqlite_autoindex_log_1"),
        ("runs_by_prefix", "sqlite_autoindex_runs_1"),
    ],
)
async def test_a_query_does_not_look_at_all_runs(store: Store, query: str, index: str) -> None:
    with closing(sqlite3.connect(store.path)) as database:
        plan = database.execute(f"explain query plan {QUERIES[query]}", PARAMETERS).fetchall()

    steps = [step for *_, step in plan]
    assert any(index in step for step in steps)
    assert not any(step.startswith("SCAN") and "USING" not in step for step in steps)


def test_a_store_outlives_the_loop_that_used_it(tmp_path: Path) -> None:
    """A program that dies between two loops still closes its store."""
    store = open_store(tmp_path / "state")

    async def write_and_leave() -> None:
        tail = await begin(store, 1)
        with writer_held_up(store.state):
            store.append(tail, [frames(2)], None, lambda _: None)

    anyio.run(write_and_leave)
    store.close()

    with open_store(tmp_path / "state", readonly=True) as reopened:
        assert read_all(reopened, run_id(1))[-1].last == 2
