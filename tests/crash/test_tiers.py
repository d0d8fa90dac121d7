"""Launches that are ended at any of their first moments: nothing of them lives on."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import anyio
import pytest

from capsule_runtime.core.sandbox_plan import WallPlan
from capsule_runtime.errors import CapsuleError
from capsule_runtime.host.machine import find_machine
from capsule_runtime.host.namespaces import find_namespaces
from capsule_runtime.host.process import Spawn, Tree
from capsule_runtime.host.scoping import find_scopes
from support.cell import Cell, open_cell
from support.processes import caged_by, processes_of

LAUNCHES = 200
SPAN_SECONDS = 0.040
CLINGS = """
import os, signal
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
    signal.signal(number, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.closerange(0, 3)
while True:
    signal.pause()
"""

pytestmark = [
    pytest.mark.parametrize("anyio_backend", ["asyncio"]),
    pytest.mark.parametrize("tier", ["advisory", "scoped", "sealed"]),
]

End = Callable[[Tree], None]


def walls_of(cell: Cell, tier: str) -> WallPlan:
    if tier == "advisory":
        return cell.walls()
    if tier == "scoped":
        if why := find_scopes().why:
            pytest.skip(why)
        return cell.scoped()
    if not (found := find_namespaces()).variant:
        pytest.skip(found.why)
    return cell.sealed()


def kill_harness(tree: Tree) -> None:
    with suppress(ProcessLookupError):
        os.kill(tree.pid, signal.SIGKILL)


def interrupt(tree: Tree) -> None:
    tree.signal(signal.SIGINT)
    tree.bury()


async def launch_for(cell: Cell, walls: WallPlan, seconds: float, end: End) -> None:
    """Launch what clings, and *end* it, or the wait for its launch, after *seconds*."""
    ends_at = anyio.current_time() + seconds
    with anyio.CancelScope(deadline=ends_at), suppress(CapsuleError):
        async with cell.started(CLINGS, walls) as (tree, _):
            with anyio.CancelScope(shield=True):
                await anyio.sleep_until(ends_at)
                end(tree)
                await tree.buried()


@pytest.mark.parametrize("end", [kill_harness, interrupt, Tree.bury])
async def test_nothing_is_left_of_a_launch_that_was_ended_in_its_first_40_ms(
    tier: str, end: End
) -> None:
    async with open_cell() as cell:
        walls = walls_of(cell, tier)
        for number in range(LAUNCHES):
            await launch_for(cell, walls, SPAN_SECONDS * number / LAUNCHES, end)

        assert caged_by(os.getpid()) == []
    assert caged_by(os.getpid()) == []


async def test_a_run_lives_on_when_the_thread_ends_that_started_it(tier: str) -> None:
    async with open_cell() as cell:
        walls = walls_of(cell, tier)
        spawn = cell.spawn_of((sys.executable, "-I", "-S", "-c", CLINGS), walls)
        tree = await anyio.to_thread.run_sync(partial(in_a_thread_that_ends, cell, spawn))
        with anyio.move_on_after(0.3):
            await tree.exited()

        assert tree.pid in processes_of(tree.run)
        if find_machine().cgroups.places:
            assert tree.pid in caged_by(os.getpid())
        tree.bury()
        await tree.buried()
        for handed in tree.handed:
            os.close(handed)


def in_a_thread_that_ends(cell: Cell, spawn: Spawn) -> Tree:
    """Start *spawn* from a thread of its own, and return once that has ended."""
    trees: list[Tree] = []
    with open(os.devnull, "r+b") as null:
        stdio = (null.fileno(), null.fileno(), null.fileno())
        thread = threading.Thread(
            target=lambda: trees.append(anyio.run(cell.warden.spawn, spawn, *stdio))
        )
        thread.start()
        thread.join()
    return trees[0]
