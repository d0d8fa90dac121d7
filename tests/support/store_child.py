"""A process that uses the store as a supervisor or a follower would.

store_child.py VERB STATE [ARGUMENT ...]: prints lines, and ends when its input does.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio

sys.path.insert(0, str(Path(__file__).parents[1]))

from capsule_runtime.errors import StoreError
from capsule_runtime.host.bell import follow_bell
from capsule_runtime.host.locks import CommitLock, try_take
from capsule_runtime.host.store import open_store
from support.stores import begin, frames, index_of, run_id

FLOOD_BYTES = 64 * 1024


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


async def acknowledge(state: Path, number: str, backlog: str) -> None:
    """Append to a run with up to *backlog* rows in flight; say the last entry of each on disk."""
    async with open_store(state) as store:
        tail = await store.claim(run_id(int(number)))
        room = anyio.Semaphore(int(backlog))
        while True:
            await room.acquire()
            last = tail.next + 2

            def done(error: StoreError | None, last: int = last) -> None:
                say(last if error is None else error)
                room.release()

            store.append(tail, [frames(tail.next, 3, "x" * 50)], None, done)


async def flood(state: Path, number: str) -> None:
    """Write as much as the disk takes until killed."""
    async with open_store(state) as store:
        tail = await begin(store, int(number))
        room = anyio.Semaphore(32)
        say("ready")
        filler = "x" * FLOOD_BYTES
        while True:
            await room.acquire()
            row = frames(tail.next, 1, filler)
            store.append(tail, [row], None, lambda error: room.release())


async def race(state: Path, number: str) -> None:
    """Claim a run, wait for a line, append once."""
    async with open_store(state) as store:
        tail = await store.claim(run_id(int(number)))
        say("claimed")
        sys.stdin.readline()
        try:
            await store.commit(tail, [frames(tail.next)])
            say("won")
        except StoreError as error:
            say(error.code)


async def follow(state: Path, number: str) -> None:
    """Say the number of the last entry, and the time, as soon as it is there."""
    with open_store(state, readonly=True) as store:
        run, seen = run_id(int(number)), 0
        async with follow_bell(store.bell(run), store.data_version) as bell:
            say("deaf" if bell.is_deaf else "armed")
            while True:
                while rows := store.read(run, seen):
                    seen = rows[-1].last
                    say(seen, time.monotonic())
                await bell.rung()


async def own(state: Path, owner: str) -> None:
    """Hold the lock of a supervisor."""
    with open_store(state) as store:
        lock = try_take(store.owner_lock(owner))
        say("refused" if lock is None else "owner")
        sys.stdin.read()


async def hold_commit(state: Path) -> None:
    """Sit on the commit lock."""
    with CommitLock(state / "commit.lock").held():
        say("holding")
        sys.stdin.read()


async def fill(state: Path) -> None:
    """Fill a disk of 4 MiB, make room again, write the end."""
    ballast = state.parent / "ballast"
    ballast.write_bytes(bytes(2 << 20))
    async with open_store(state) as store:
        tail = await begin(store, 1)
        acknowledged = 1
        try:
            while True:
                await store.commit(tail, [frames(tail.next, 1, "x" * 10_000)])
                acknowledged = tail.next - 1
        except StoreError as error:
            say(error.code, error.message, "|", error.hint)
        try:
            await store.commit(tail, [frames(tail.next)])
        except StoreError as error:
            say(error.code)
        ballast.unlink()
    async with open_store(state) as store:
        tail = await store.claim(run_id(1))
        say("acknowledged", acknowledged, "found", tail.next - 1)
        await store.commit(tail, [frames(tail.next)], index_of(1, "ended", None))
        say("problems", store.check())
        say("state", store.find(run_id(1))[0].state)


async def no_space_for_a_run(state: Path) -> None:
    """Create runs on a small disk until it is full, and count what is left of the last one."""
    number = 0
    async with open_store(state) as store:
        try:
            while True:
                number += 1
                await begin(store, number)
        except StoreError as error:
            say(error.code)
        found = {run.id for run in store.runs(10_000)}
        left = {path.name for path in (state / "runs").iterdir()}
        say("same", found == left)


async def try_open(state: Path, *readonly: str) -> None:
    """Open the store and read run 1."""
    with open_store(state, readonly=bool(readonly)) as store:
        say("opened", store.read(run_id(1), 0)[0].last)


async def create(state: Path) -> None:
    """Make a store with run 1."""
    async with open_store(state) as store:
        await begin(store, 1)
    say("created")


async def open_where_proc_says(state: Path, kind: str) -> None:
    """Open the store in a /proc that calls every file system *kind*. Needs its own mounts."""
    _invent_proc(kind)
    await try_open(state)


def _invent_proc(kind: str) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "none", "/proc"], check=True)
    fdinfo = Path("/proc/self/fdinfo")
    fdinfo.mkdir(parents=True)
    for fd in range(100):
        (fdinfo / str(fd)).write_text("pos:\t0\nmnt_id:\t7\n")
    Path("/proc/self/mountinfo").write_text(f"7 1 0:1 / /data rw - {kind} server rw\n")


VERBS: dict[str, Callable[..., Awaitable[None]]] = {
    verb.__name__: verb
    for verb in (
        acknowledge,
        create,
        fill,
        flood,
        follow,
        hold_commit,
        no_space_for_a_run,
        open_where_proc_says,
        own,
        race,
        try_open,
    )
}

if __name__ == "__main__":
    _, name, state_directory, *rest = sys.argv
    try:
        anyio.run(VERBS[name], Path(state_directory), *rest)
    except StoreError as error:
        say(error.code, error.message, "|", error.hint)
