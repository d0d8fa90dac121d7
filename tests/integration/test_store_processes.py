"""Several processes on one store: kills, races, neighbours, followers."""

from __future__ import annotations

import random
import signal
import statistics
import time
from collections.abc import AsyncGenerator
from contextlib import ExitStack, closing
from pathlib import Path
from sqlite3 import connect

import anyio
import pytest

from capsule_runtime.core.chain import Row
from capsule_runtime.host.audience import Audience, attend
from capsule_runtime.host.bell import follow_bell
from capsule_runtime.host.locks import OwnerLock, is_free, take, try_take
from capsule_runtime.host.store import Store, open_store
from support.stores import begin, child, frames, read_all, run_id

KILLS = 12


@pytest.fixture
async def store(tmp_path: Path) -> AsyncGenerator[Store]:
    async with open_store(tmp_path / "state") as opened:
        yield opened


@pytest.mark.parametrize("backlog", [1, 50])
def test_what_was_acknowledged_survives_a_kill_and_no_row_is_half_there(
    tmp_path: Path, backlog: int
) -> None:
    state, lot = tmp_path / "state", random.Random(backlog)

    async def create() -> None:
        async with open_store(state) as store:
            await begin(store, 1)

    anyio.run(create)
    for _ in range(KILLS):
        with child("acknowledge", state, "1", str(backlog)) as writer:
            acknowledged = [int(writer.hear()) for _ in range(lot.randint(1, 60))]
            writer.process.kill()
            acknowledged += [int(line) for line in writer.finish()]
        with open_store(state, readonly=True) as store:
            rows = read_all(store, run_id(1))
            problems = store.check()

        assert rows[-1].last >= acknowledged[-1]
        assert all(row == whole(row) for row in rows[1:])
        assert problems == []


def whole(row: Row) -> Row:
    return frames(row.first, 3, "x" * 50)


async def test_of_racing_processes_one_wins(store: Store) -> None:
    await begin(store, 1)

    with ExitStack() as stack:
        racers = [stack.enter_context(child("race", store.state, "1")) for _ in range(6)]
        ready = [racer.hear() for racer in racers]
        for racer in racers:
            racer.say("go")
        results = sorted(line for racer in racers for line in racer.finish())

    assert ready == ["claimed"] * 6
    assert results == ["E-STO-008"] * 5 + ["won"]
    assert read_all(store, run_id(1))[-1].last == 2
    assert store.check() == []


async def test_a_saturating_neighbour_cannot_starve_a_small_commit(store: Store) -> None:
    """Left to SQLite's busy handler, or to a bare flock, single waits take a second."""
    tail = await begin(store, 1)
    waits: list[float] = []

    with child("flood", store.state, "2") as neighbour:
        ready = neighbour.hear()
        for seq in range(2, 102):
            start = time.perf_counter()
            await store.commit(tail, [frames(seq)])
            waits.append(time.perf_counter() - start)
        flooded = store.read(run_id(2), 0, limit_rows=10_000)

    assert ready == "ready"
    assert len(flooded) > 100
    assert statistics.median(waits) < 0.1
    assert max(waits) < 1


async def test_a_follower_in_another_process_hears_each_commit(store: Store) -> None:
    tail = await begin(store, 1)
    waits: list[float] = []

    with child("follow", store.state, "1") as follower:
        armed, first = follower.hear(), follower.hear()
        for seq in range(2, 42):
            start = time.perf_counter()
            await store.commit(tail, [frames(seq)])
            heard = follower.hear()
            waits.append(time.perf_counter() - start)
            assert heard.startswith(f"{seq} ")

    assert armed == "armed"
    assert first.startswith("1 ")
    # Far below the second look: the bell was heard.
    assert statistics.median(waits) < 0.2


async def test_what_is_committed_between_arming_and_waiting_rings(store: Store) -> None:
    tail = await begin(store, 1)

    with open_store(store.state, readonly=True) as reading:
        async with follow_bell(reading.bell(run_id(1)), reading.data_version) as bell:
            await store.commit(tail, [frames(2)])
            with anyio.fail_after(0.5):
                await bell.rung()

    assert not bell.is_deaf


async def test_a_commit_whose_writer_died_before_it_rang_is_found(store: Store) -> None:
    await begin(store, 1)

    with open_store(store.state, readonly=True) as reading:
        async with follow_bell(reading.bell(run_id(1)), reading.data_version) as bell:
            with closing(connect(store.path)) as silent, silent:
                silent.execute("update runs set session = 's'")
            with anyio.fail_after(5):
                await bell.rung()

    assert not bell.is_deaf


async def test_without_a_watch_a_follower_looks_often(store: Store, tmp_path: Path) -> None:
    tail = await begin(store, 1)

    with open_store(store.state, readonly=True) as reading:
        async with follow_bell(tmp_path / "no such bell", reading.data_version) as bell:
            await store.commit(tail, [frames(2)])
            start = time.perf_counter()
            await bell.rung()
            waited = time.perf_counter() - start

    assert bell.is_deaf
    assert waited < 0.5


async def test_a_bell_that_nobody_rings_stays_silent(store: Store) -> None:
    await begin(store, 1)
    neighbour = await begin(store, 2)

    with open_store(store.state, readonly=True) as reading:
        async with follow_bell(reading.bell(run_id(1)), reading.data_version) as bell:
            await store.commit(neighbour, [frames(2)])
            with anyio.move_on_after(0.1) as scope:
                await bell.rung()

    assert scope.cancelled_caught


async def test_an_owner_lock_binds_processes_and_this_one_alike(store: Store) -> None:
    path = store.owner_lock("me")
    with child("own", store.state, "me") as owner:
        word = owner.hear()
        free, here = is_free(path), try_take(path)
        waited = await take(path, 0.05)

    assert (word, free, here, waited) == ("owner", False, None, None)


async def test_an_owner_lock_comes_free_when_its_process_is_killed(store: Store) -> None:
    path = store.owner_lock("me")
    taken: list[OwnerLock | None] = []

    with child("own", store.state, "me") as owner:
        owner.hear()
        async with anyio.create_task_group() as group:
            group.start_soon(take_into, taken, path)
            owner.process.send_signal(signal.SIGKILL)

    (lock,) = taken
    assert lock is not None
    with lock:
        assert not is_free(path)
    assert is_free(path)
    assert not path.exists()


async def take_into(taken: list[OwnerLock | None], path: Path) -> None:
    taken.append(await take(path, 10))


async def test_a_lock_taken_here_is_refused_there(store: Store) -> None:
    lock = try_take(store.owner_lock("me"))
    assert lock is not None
    with lock, child("own", store.state, "me") as other:
        assert other.hear() == "refused"


async def test_a_lock_on_a_file_that_was_removed_binds_nobody(store: Store) -> None:
    """Whoever waited for the old file's lock must take the new file's instead."""
    path = store.owner_lock("me")
    first = try_take(path)
    assert first is not None
    first.release()

    second = try_take(path)
    assert second is not None
    with second:
        first.release()
        assert try_take(path) is None


async def test_an_owner_rings_for_the_runs_that_it_is_told_are_followed(tmp_path: Path) -> None:
    async with open_store(tmp_path / "state", owner="sup") as store:
        followed, alone = await begin(store, 1), await begin(store, 2)
        was_heard = attend(store.audience("sup"), run_id(1))

        with open_store(store.state, readonly=True) as reading:
            async with (
                follow_bell(reading.bell(run_id(1)), reading.data_version) as bell,
                follow_bell(reading.bell(run_id(2)), reading.data_version) as other,
            ):
                await store.commit(followed, [frames(2)])
                await store.commit(alone, [frames(2)])
                with anyio.fail_after(0.5):
                    await bell.rung()
                with anyio.move_on_after(0.1) as silence:
                    await other.rung()

    assert was_heard
    assert silence.cancelled_caught


async def test_a_claimed_run_rings_whoever_its_followers_told(tmp_path: Path) -> None:
    async with open_store(tmp_path / "state") as store:
        await begin(store, 1)
    async with open_store(tmp_path / "state", owner="heir") as store:
        tail = await store.claim(run_id(1))

        with open_store(store.state, readonly=True) as reading:
            async with follow_bell(reading.bell(run_id(1)), reading.data_version) as bell:
                await store.commit(tail, [frames(2)])
                with anyio.fail_after(0.5):
                    await bell.rung()


async def test_an_audience_is_heard_over_in_pieces_and_ends_with_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "sup.audience"
    audience = Audience(path)
    told = [attend(path, f"run_{number:060}") for number in range(2000)]
    first = len(audience.runs())  # a piece ends in the middle of an id

    later = len(audience.runs())
    audience.close()

    assert all(told)
    assert 900 < first < 1100
    assert later > first
    assert not attend(path, "run_late")
