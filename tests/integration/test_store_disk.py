"""What the machine may refuse: room, writing, a local disk, the lock."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from sqlite3 import connect

import anyio
import pytest

from capsule_runtime.errors import StoreError
from capsule_runtime.host.connections import open_writable
from capsule_runtime.host.locks import CommitLock
from capsule_runtime.host.store import Store, open_store
from support.stores import CHILD, begin, child, frames, index_of, read_all, run_id


def can_mount() -> bool:
    if shutil.which("unshare") is None:
        return False
    probe = ["unshare", "-rm", "mount", "-t", "tmpfs", "none", "/tmp"]
    return subprocess.run(probe, stderr=subprocess.DEVNULL).returncode == 0


needs_mounts = pytest.mark.skipif(not can_mount(), reason="no mount namespace to be had")


def run_with_mounts(script: str, directory: Path) -> list[str]:
    """Run shell *script* with mounts of its own; $CHILD is the store child, $1 the directory."""
    prelude = f'CHILD="{sys.executable} {CHILD}"; set -e; '
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", prelude + script, "sh", directory],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


@needs_mounts
def test_a_full_disk_is_told_and_takes_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    told = run_with_mounts(
        'mount -t tmpfs -o size=4m none "$1"; exec $CHILD fill "$1/state"', tmp_path
    )
    first, second, found, problems, state = told

    assert first.startswith(f"E-STO-005 {tmp_path}/state/capsule.db has no room left")
    assert "Free some disk space" in first
    assert second == "E-STO-005"
    words = found.split()
    assert words[1] == words[3]
    assert int(words[1]) > 20
    assert problems == "problems []"
    assert state == "state ended"


@needs_mounts
def test_a_run_that_found_no_room_leaves_nothing_behind(tmp_path: Path) -> None:
    told = run_with_mounts(
        'mount -t tmpfs -o size=1m none "$1"; exec $CHILD no_space_for_a_run "$1/state"', tmp_path
    )

    assert told == ["E-STO-005", "same True"]


@needs_mounts
def test_a_read_only_disk_refuses_writers_and_serves_readers(tmp_path: Path) -> None:
    told = run_with_mounts(
        'mount -t tmpfs none "$1"; $CHILD create "$1/state"; mount -o remount,ro "$1";'
        ' $CHILD try_open "$1/state"; $CHILD try_open "$1/state" readonly',
        tmp_path,
    )

    assert told[0] == "created"
    assert told[1].startswith(f"E-STO-006 {tmp_path}/state")
    assert "CAPSULE_STATE" in told[1]
    assert told[2] == "opened 1"


@needs_mounts
def test_a_state_directory_cannot_be_made_on_a_read_only_disk(tmp_path: Path) -> None:
    (told,) = run_with_mounts('mount -t tmpfs -o ro none "$1"; $CHILD create "$1/state"', tmp_path)

    assert told.startswith(f"E-STO-006 {tmp_path}/state is read-only")


@needs_mounts
@pytest.mark.parametrize(("kind", "answer"), [("nfs4", "E-STO-002"), ("ext4", "opened")])
def test_a_network_file_system_is_refused(tmp_path: Path, kind: str, answer: str) -> None:
    (line,) = run_with_mounts(
        f'$CHILD create "$1/state" >&2; $CHILD open_where_proc_says "$1/state" {kind}', tmp_path
    )

    assert line.startswith(answer)
    assert kind != "nfs4" or f"{tmp_path}/state is on a network file system (nfs4 at /data)" in line


async def test_a_database_at_its_limit_is_full_and_each_write_stands_alone(tmp_path: Path) -> None:
    """What is too big for the room left must not take what is small down with it."""
    connections = open_writable(tmp_path / "state")
    async with Store(tmp_path / "state", connections) as store:
        big, small = await begin(store, 1), await begin(store, 2)
        assert connections.writing is not None
        (pages,) = connections.writing.database.execute("pragma page_count").fetchone()
        connections.writing.database.execute(f"pragma max_page_count = {pages + 2}")
        told: dict[str, str | None] = {}
        lock = CommitLock(tmp_path / "state" / "commit.lock")

        with lock.held():
            store.append(big, [frames(2, 1, "x" * 100_000)], None, keep(told, "big"))
            store.append(big, [frames(3)], None, keep(told, "after big"))
            store.append(small, [frames(2)], None, keep(told, "small"))
        await store.commit(small, [frames(3)])
        lock.close()

        assert told == {"big": "E-STO-005", "after big": "E-STO-005", "small": None}
        assert read_all(store, run_id(1))[-1].last == 1
        assert read_all(store, run_id(2))[-1].last == 3
        assert store.check() == []


def keep(told: dict[str, str | None], name: str) -> Callable[[StoreError | None], None]:
    def done(error: StoreError | None) -> None:
        told[name] = error.code if error else None

    return done


def test_the_commit_lock_gives_up_on_a_stranger(tmp_path: Path) -> None:
    holder, waiter = CommitLock(tmp_path / "lock"), CommitLock(tmp_path / "lock", patience=0.05)

    with holder.held(), pytest.raises(StoreError, match="locked by another program") as told:
        with waiter.held():
            pytest.fail("two held one lock")
    with waiter.held():
        pass
    holder.close()
    waiter.close()

    assert told.value.code == "E-STO-007"
    assert f"fuser -v {tmp_path}/lock" in told.value.hint


def test_a_stranger_in_the_database_is_told_after_five_seconds(tmp_path: Path) -> None:
    """Such as a database shell with an open transaction. Afterwards others can write again."""

    async def scenario() -> list[str | None]:
        async with open_store(tmp_path / "state") as store:
            tails = [await begin(store, number) for number in (1, 2)]
            told: dict[str, str | None] = {}
            with closing(connect(store.path, isolation_level=None)) as stranger:
                stranger.execute("begin immediate")
                store.append(tails[0], [frames(2)], None, keep(told, tails[0].id))
                with pytest.raises(StoreError, match="database is locked"):
                    await store.commit(tails[1], [frames(2)])
                stranger.execute("rollback")
            await store.commit(await store.claim(run_id(1)), [frames(2)], index_of(1, "ended"))
            return list(told.values())

    assert anyio.run(scenario) == ["E-STO-007"]


def test_a_state_directory_that_is_a_file_cannot_be_opened(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("mine")

    with pytest.raises(StoreError, match="File exists") as told:
        open_store(tmp_path / "state")

    assert told.value.code == "E-STO-001"


def test_a_store_that_is_not_there_is_not_made_by_reading(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="No such file") as told:
        open_store(tmp_path / "state", readonly=True)

    assert told.value.code == "E-STO-001"
    assert not (tmp_path / "state").exists()


def test_a_stopped_program_that_commits_is_not_waited_for_forever(tmp_path: Path) -> None:
    open_store(tmp_path / "state").close()
    with child("hold_commit", tmp_path / "state") as holder:
        assert holder.hear() == "holding"
        waiter = CommitLock(tmp_path / "state" / "commit.lock", patience=0.05)
        with pytest.raises(StoreError) as told, waiter.held():
            pytest.fail("two held one lock")
        holder.process.kill()
        holder.process.wait()
        with waiter.held():
            pass
        waiter.close()

    assert told.value.code == "E-STO-007"
