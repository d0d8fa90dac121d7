"""Try the whole corpus in one tier, and the matrix that comes of it."""

from __future__ import annotations

import os
import platform
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import anyio
from msgspec import Struct

from capsule_runtime.host.machine import find_machine
from capsule_runtime.host.namespaces import find_namespaces
from capsule_runtime.host.process import open_warden
from support.corpus import exhausting, files, network, privileges, processes, sealing
from support.corpus.clearing import remove
from support.corpus.probe import PROBES, Probe
from support.corpus.rig import Rig
from support.corpus.tiers import TIERS

ROOMS = (files, network, processes, privileges, exhausting, sealing)
"""Where probes are. Being imported, they are in `PROBES`."""
HELD, CANNOT, ESCAPED, CEILING = 0, 2, 3, 4
"""What the program ends with: nothing gave way; a tier cannot be had here; a harness got out; a
ceiling gave way."""


class Result(Struct, frozen=True):
    """How one probe ended in one tier."""

    probe: str
    tries: str
    tier: str
    ways_out: tuple[str, ...]
    """The routes by which it got out."""
    unstated: tuple[str, ...]
    """Those that the tier is not said to leave open."""
    is_ceiling: bool
    seconds: float
    trouble: str = ""
    """Why it could not be tried."""


class Matrix(Struct, frozen=True):
    """What a machine's tiers hold."""

    machine: str
    landlock_abi: int
    cgroups: str
    bwrap: str
    lacking: dict[str, str]
    """Which tiers there are not, and why."""
    results: tuple[Result, ...]


def named(probe: Probe) -> str:
    return str(probe)


async def try_all(tier: str, probes: Sequence[Probe]) -> list[Result]:
    """Try *probes* in *tier*, one after another."""
    folder = Path(tempfile.mkdtemp(prefix="corpus-", dir="/var/tmp"))
    folder.chmod(0o755)
    door = folder / "socket"
    try:
        async with open_warden(str(folder / "lock"), str(door)) as warden:
            results: list[Result] = []
            for number, probe in enumerate(probes):
                rig = Rig(folder / str(number), warden, TIERS[tier], door)
                results.append(await _try_one(probe, rig, tier))
            return results
    finally:
        remove(folder)


async def _try_one(probe: Probe, rig: Rig, tier: str) -> Result:
    began, trouble = time.monotonic(), ""
    ways: tuple[str, ...] = ()
    try:
        with anyio.fail_after(60):
            ways = tuple(dict.fromkeys(await probe.deed(rig)))
    except Exception as exc:  # whatever went wrong belongs into the matrix
        trouble = f"{type(exc).__name__}: {exc}"[:2000]
    promises = rig.tier.promises
    unstated = tuple(way for way in ways if promises and not probe.open_in(promises, way))
    return Result(
        str(probe),
        probe.tries,
        tier,
        ways,
        unstated,
        probe.is_ceiling,
        round(time.monotonic() - began, 3),
        trouble,
    )


def lacking_tiers(names: Iterable[str]) -> dict[str, str]:
    """Return which of the tiers *names* cannot be had here, and why."""
    reasons = {name: TIERS[name].why_not() for name in names}
    return {name: why for name, why in reasons.items() if why}


def matrix_of(results: Iterable[Result], lacking: dict[str, str]) -> Matrix:
    """Return *results* with what there is on this machine."""
    machine, found = find_machine(), find_namespaces()
    return Matrix(
        f"{platform.release()} {platform.machine()}",
        machine.landlock_abi,
        machine.cgroups.kind,
        f"{found.bwrap} {found.version}".strip(),
        lacking,
        tuple(results),
    )


def useless(matrix: Matrix) -> list[str]:
    """Return the probes that got out nowhere, and so prove nothing."""
    by_root = os.geteuid() == 0
    out = {result.probe for result in matrix.results if result.ways_out}
    return [
        str(probe)
        for probe in PROBES
        if str(probe) not in out
        and not probe.nowhere
        and not (probe.needs_root and not by_root)
        and any(result.probe == str(probe) and result.tier == "none" for result in matrix.results)
    ]


def verdict(matrix: Matrix) -> int:
    """Return what the program ends with."""
    broken = [result for result in matrix.results if result.unstated or result.trouble]
    if any(not result.is_ceiling for result in broken):
        return ESCAPED
    if broken:
        return CEILING
    return CANNOT if matrix.lacking else HELD


def show(matrix: Matrix) -> str:
    """Return the matrix as text, a line for each probe."""
    tiers = list(dict.fromkeys(result.tier for result in matrix.results))
    cells = {(result.probe, result.tier): _cell(result) for result in matrix.results}
    probes = sorted({result.probe for result in matrix.results})
    width = max(map(len, probes), default=0)
    lines = [
        f"Linux {matrix.machine}, Landlock ABI {matrix.landlock_abi}, {matrix.cgroups}, {matrix.bwrap}",
        f"{'':<{width}}  " + "  ".join(f"{tier:<9}" for tier in tiers),
    ]
    for probe in probes:
        row = "  ".join(f"{cells.get((probe, tier), '-'):<9}" for tier in tiers)
        lines += [f"{probe:<{width}}  {row}".rstrip()]
    lines += [
        f"{one.tier} {one.probe}: {', '.join(one.unstated)} {one.trouble}"
        for one in matrix.results
        if one.unstated or one.trouble
    ]
    lines += [f"{tier} cannot be had here: {why}" for tier, why in matrix.lacking.items()]
    return "\n".join(lines)


def _cell(result: Result) -> str:
    if result.trouble:
        return "failed"
    if result.unstated:
        return "OUT"
    return (
        "stated"
        if result.ways_out and result.tier != "none"
        else "out"
        if result.ways_out
        else "held"
    )
