"""What walls cost: a launch with and without them, interleaved, and the memory of idle buriers.

Run: python tests/bench/bench_launch.py
"""

from __future__ import annotations

import os
import re
import statistics
import sys
import time
from pathlib import Path

import anyio

sys.path.insert(0, str(Path(__file__).parents[1]))

from capsule_runtime.core.sandbox_plan import WallPlan
from capsule_runtime.host.process import Spawn, Tree, Warden
from support.cell import Cell, open_cell
from support.processes import parent_of

ROUNDS = 30
IDLE = 50


async def launch(warden: Warden, cell: Cell, number: int, walls: WallPlan | None) -> float:
    """Return the milliseconds from asking for a shell until its first output."""
    reader, writer = os.pipe()
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    argv, env = ("/bin/sh", "-c", "echo hello"), {"PATH": "/usr/bin:/bin"}
    began = time.perf_counter()
    spawn = Spawn(f"run_{number}", argv, env, str(cell.workdir), walls)
    tree = await warden.spawn(spawn, null, writer, null)
    os.close(writer)
    await anyio.wait_readable(reader)
    took = (time.perf_counter() - began) * 1000
    await tree.buried()
    os.close(reader)
    os.close(null)
    return took


async def idle(warden: Warden, cell: Cell, number: int, walls: WallPlan | None) -> Tree:
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    spawn = Spawn(f"idle_{number}", ("/bin/sleep", "1000"), {}, str(cell.workdir), walls)
    tree = await warden.spawn(spawn, null, null, null)
    os.close(null)
    return tree


def kibibytes(pid: int, name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+)", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.M)
    assert found is not None
    return int(found[1])


async def main() -> None:
    async with open_cell() as cell:
        warden, kinds = cell.warden, {"no walls": None, "walls": cell.walls()}
        took: dict[str, list[float]] = {kind: [] for kind in kinds}
        for number in range(ROUNDS + 1):
            for kind, walls in kinds.items():
                took[kind].append(await launch(warden, cell, number, walls))
        for kind, times in took.items():
            median, least = statistics.median(times[1:]), min(times)
            sys.stdout.write(f"launch, {kind}: median {median:.2f} ms, min {least:.2f} ms\n")
        trees = [await idle(warden, cell, number, kinds["walls"]) for number in range(IDLE)]
        buriers = [parent_of(tree.pid) for tree in trees]
        for name in ("Pss", "Private_Dirty"):
            middle = statistics.median(kibibytes(burier, name) for burier in buriers)
            sys.stdout.write(f"idle burier, one of {IDLE}: {name} {middle:.0f} KiB\n")


if __name__ == "__main__":
    anyio.run(main)
