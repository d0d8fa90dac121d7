"""One process, one store: runs, rows, index, contexts, requests."""

from __future__ import annotations

import os
import stat
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from capsule_runtime.core.chain import Row
from capsule_runtime.errors import StoreError
from capsule_runtime.host.locks import try_take
from capsule_runtime.host.log_tail import LogTail
from capsule_runtime.host.rows import ContextBusy, ContextDiffers, ContextRow, Request
from capsule_runtime.host.store import Store, open_store
from support.stores import NOW, begin, context_of, fact, frames, index_of, read_all, run_id


@pytest.fixture
async def store(tmp_path: Path) -> AsyncGenerator[Store]:
    async with open_store(tmp_path / "state") as opened:
        yield opened


async def test_a_created_run_is_in_the_log_and_in_the_index(store: Store) -> None:
    row = fact(1, index_of(1))

    tail = await store.create_run(index_of(1), [row], context_of(1))

    assert isinstance(tail, LogTail)
    assert (tail.id, tail.next) == (run_id(1), 2)
    assert read_all(store, run_id(1)) == [row]
    assert store.find(run_id(1)) == [index_of(1)]
    assert store.context("context-1") == context_of(1)


async def test_what_was_committed_is_read_back_byte_for_byte(store: Store) -> None:
    tail = await begin(store, 1)
    rows = [frames(2, 800, "é\\u2028"), fact(802, index_of(1)), frames(803)]

    await store.commit(tail, rows)

    assert read_all(store, run_id(1))[1:] == rows


@pytest.mark.parametrize(("after", "first"), [(0, 1), (1, 2), (2, 2), (10, 2), (11, 12), (12, 13)])
async def test_a_read_begins_with_the_row_that_holds_the_next_entry(
    store: Store, after: int, first: int
) -> None:
    tail = await begin(store, 1)
    await store.commit(tail, [frames(2, 10), frames(12), frames(13)])

    assert store.read(run_id(1), after)[0].first == first


async def test_a_read_past_the_end_finds_nothing(store: Store) -> None:
    await begin(store, 1)

    assert store.read(run_id(1), 1) == []
    assert store.read(run_id(2), 0) == []


async def test_a_read_gives_a_page(store: Store) -> None:
    tail = await begin(store, 1)
    await store.commit(tail, [frames(2), fact(3, index_of(1)), frames(4), frames(5)])

    page = store.read(run_id(1), 1, limit_rows=2)
    rest = store.read(run_id(1), page[-1].last, limit_rows=2)

    assert [row.first for row in page] == [2, 3]
    assert [row.first for row in rest] == [4, 5]


async def test_two_logs_do_not_mix(store: Store) -> None:
    tails = [await begin(store, 1), await begin(store, 2)]
    for tail in tails * 2:
        await store.commit(tail, [frames(tail.next, 2)])

    assert [row.first for row in read_all(store, run_id(1))] == [1, 2, 4]
    assert [row.first for row in read_all(store, run_id(2))] == [1, 2, 4]


@pytest.mark.parametrize("row", [frames(1), frames(3), Row(2, 1, frames(2).body)])
async def test_rows_that_do_not_follow_are_refused_before_they_are_queued(
    store: Store, row: object
) -> None:
    tail = await begin(store, 1)
    assert isinstance(row, type(frames(1)))

    with pytest.raises(ValueError, match="do not follow 1 in run_0"):
        await store.commit(tail, [row])

    await store.commit(tail, [frames(2)])
    assert [row.first for row in read_all(store, run_id(1))] == [1, 2]


async def test_the_index_moves_with_the_rows(store: Store) -> None:
    tail = await begin(store, 1)
    ended = replace(index_of(1, "ended", None), outcome="completed", ended_at=NOW, session="s")

    await store.commit(tail, [fact(2, ended), frames(3)], ended)

    assert store.find(run_id(1)) == [ended]


async def test_a_context_keeps_what_an_update_leaves_out(store: Store) -> None:
    tail = await begin(store, 1)
    session = replace(context_of(1), session="s-1")
    memory = replace(context_of(1), memory=b"m")

    await store.commit(tail, [frames(2)], context=session)
    await store.commit(tail, [frames(3)], context=memory)

    assert store.context("context-1") == replace(session, memory=b"m")


@pytest.mark.parametrize("state", ["starting", "running", "stopping", "parked"])
async def test_a_busy_context_names_the_run_that_holds_it(store: Store, state: str) -> None:
    await store.create_run(index_of(1, state), [fact(1, index_of(1))], context_of(1))
    second = replace(index_of(2), context="context-1")

    refused = await store.create_run(second, [fact(1, second)], context_of(1))

    assert refused == ContextBusy(run_id(1))
    assert store.runs(10) == [index_of(1, state)]
    assert not store.bell(run_id(2)).parent.exists()


async def test_a_context_is_free_again_after_its_run(store: Store) -> None:
    tail = await begin(store, 1)
    await store.commit(tail, [frames(2)], index_of(1, "ended", None))
    second = replace(index_of(2), context="context-1")

    made = await store.create_run(second, [fact(1, second)], context_of(1))

    assert isinstance(made, LogTail)


@pytest.mark.parametrize(
    "mine", [replace(context_of(1), uuid="x"), replace(context_of(1), driver="x")]
)
async def test_a_context_that_somebody_else_made_meanwhile_is_given_back(
    store: Store, mine: ContextRow
) -> None:
    tail = await begin(store, 1)
    await store.commit(tail, [frames(2)], index_of(1, "ended", None))
    second = replace(index_of(2), context="context-1")

    refused = await store.create_run(second, [fact(1, second)], mine)

    assert refused == ContextDiffers(context_of(1))
    assert store.find(run_id(2)) == []


async def test_of_many_runs_for_one_context_one_is_created(store: Store) -> None:
    made: list[object] = []

    async def create(number: int) -> None:
        index = replace(index_of(number), context="context-1")
        made.append(await store.create_run(index, [fact(1, index)], context_of(1)))

    async with anyio.create_task_group() as group:
        for number in range(1, 21):
            group.start_soon(create, number)

    assert len([one for one in made if isinstance(one, LogTail)]) == 1
    assert len(store.runs(100)) == 1


async def test_runs_are_found_by_prefix_and_newest_first(store: Store) -> None:
    for number in (0x1A, 0x1B, 0x2A):
        await begin(store, number)
    ended = await store.claim(run_id(0x2A))
    await store.commit(ended, [frames(2)], index_of(0x2A, "ended", None))

    assert [run.id for run in store.find(run_id(0x1A)[:-1])] == [run_id(0x1A), run_id(0x1B)]
    assert store.find("run_f") == []
    assert [run.id for run in store.runs(2)] == [run_id(0x2A), run_id(0x1B)]
    assert [run.id for run in store.runs(9, live_only=True)] == [run_id(0x1B), run_id(0x1A)]
    assert store.newest_run() == index_of(0x2A, "ended", None)


async def test_an_empty_store_has_no_newest_run(store: Store) -> None:
    assert store.newest_run() is None
    assert store.context("none") is None


async def test_runs_of_dead_owners_are_those_whose_lock_is_free(store: Store) -> None:
    for number, owner in enumerate(["alive", "dead", "gone", None], 1):
        await begin(store, number, owner)
    (tail,) = [await store.claim(run_id(3))]
    await store.commit(tail, [frames(2)], index_of(3, "ended", "gone"))
    dead = try_take(store.owner_lock("dead"))
    alive = try_take(store.owner_lock("alive"))
    assert alive is not None and dead is not None
    dead.release()

    with alive:
        found = store.live_runs_of_dead_owners()

    assert found == [index_of(2, owner="dead")]


async def test_a_dead_owner_in_whose_place_somebody_acts_is_not_found_again(store: Store) -> None:
    await begin(store, 1, "dead")

    lock = try_take(store.owner_lock("dead"))
    assert lock is not None
    with lock:
        found, left = store.live_runs_of_dead_owners(), store.live_runs_of("dead")

    assert found == []
    assert left == [index_of(1, owner="dead")]


async def test_a_request_is_given_to_the_owner_once(store: Store) -> None:
    await begin(store, 1, "me")
    await begin(store, 2, "you")

    mine = await store.ask(run_id(1), "interrupt", b"{}", NOW)
    yours = await store.ask(run_id(2), "kill", b"", NOW)
    taken = await store.take_requests("me", NOW)

    assert taken == [Request(mine, run_id(1), "interrupt", b"{}", NOW)]
    assert await store.take_requests("me", NOW) == []
    assert store.request_taken(mine)
    assert not store.request_taken(yours)


async def test_to_ask_for_nothing_writes_nothing(store: Store) -> None:
    await begin(store, 1, "me")
    before = store.data_version()

    await store.take_requests("me", NOW)

    assert store.data_version() == before


async def test_a_run_that_is_not_in_the_index_cannot_be_claimed_or_asked(store: Store) -> None:
    with pytest.raises(StoreError, match="run_x is not in the index") as claimed:
        await store.claim("run_x")
    with pytest.raises(StoreError, match="run_x is not in the index"):
        await store.ask("run_x", "kill", b"", NOW)

    assert claimed.value.code == "E-STO-004"


async def test_the_data_version_changes_with_each_commit(store: Store) -> None:
    tail = await begin(store, 1)
    before = store.data_version()

    await store.commit(tail, [frames(2)])

    assert store.data_version() != before


async def test_a_store_can_be_closed_twice_and_takes_nothing_afterwards(tmp_path: Path) -> None:
    store = open_store(tmp_path / "state")
    tail = await begin(store, 1)
    await store.aclose()
    await store.aclose()

    with pytest.raises(ValueError, match="closed"):
        store.append(tail, [frames(2)], None, lambda _: None)
    store.release(tail)


async def test_what_is_queued_is_written_before_the_store_closes(tmp_path: Path) -> None:
    told: list[StoreError | None] = []
    async with open_store(tmp_path / "state") as store:
        tail = await begin(store, 1)
        for _ in range(100):
            store.append(tail, [frames(tail.next)], None, told.append)
        store.release(tail)

    assert told == [None] * 100
    with open_store(tmp_path / "state", readonly=True) as reopened:
        assert read_all(reopened, run_id(1))[-1].last == 101


async def test_a_store_opened_for_reading_reads_and_refuses_to_write(tmp_path: Path) -> None:
    async with open_store(tmp_path / "state") as store:
        await begin(store, 1)
        with open_store(tmp_path / "state", readonly=True) as reading:
            found = reading.find(run_id(1))
            with pytest.raises(StoreError, match="opened for reading only") as refused:
                await reading.ask(run_id(1), "kill", b"", NOW)

    assert found == [index_of(1)]
    assert refused.value.code == "E-STO-006"


@pytest.mark.parametrize("umask", [0, 0o777])
async def test_only_the_owner_may_look_inside_whatever_the_umask(
    tmp_path: Path, umask: int
) -> None:
    before = os.umask(umask)
    try:
        async with open_store(tmp_path / "state") as store:
            await begin(store, 1)
            lock = try_take(store.owner_lock("sup"))
            assert lock is not None
            with lock:
                modes = {
                    path.relative_to(tmp_path).as_posix(): stat.S_IMODE(path.stat().st_mode)
                    for path in (tmp_path / "state", *(tmp_path / "state").rglob("*"))
                }
    finally:
        os.umask(before)

    run = f"state/runs/{run_id(1)}"
    assert modes == {
        "state": 0o700,
        "state/capsule.db": 0o600,
        "state/capsule.db-shm": 0o600,
        "state/capsule.db-wal": 0o600,
        "state/commit.lock": 0o600,
        "state/runs": 0o700,
        run: 0o700,
        f"{run}/bell": 0o600,
        "state/supervisors": 0o700,
        "state/supervisors/sup.lock": 0o600,
    }


async def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))

    async with open_store(tmp_path / "state") as store:
        for number in range(1, 20):
            await begin(store, number)
        busy = replace(index_of(99), context="context-1")
        await store.create_run(busy, [fact(1, busy)], context_of(1))

    assert len(os.listdir("/proc/self/fd")) == before
