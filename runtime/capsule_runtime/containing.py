"""The walls of a run: what stands where on this machine, and the plan that comes of it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from msgspec.structs import replace

from capsule_runtime.core.grants import Grants, is_beneath
from capsule_runtime.core.sandbox_plan import WallPlan, plan_walls
from capsule_runtime.core.wall_limits import ResourceLimits
from capsule_runtime.errors import ContainmentError, HostError
from capsule_runtime.host.capsule import Capsule, Launch, Places
from capsule_runtime.host.ground import ground_of
from capsule_runtime.host.machine import find_machine


def walls_of(
    capsule: Capsule,
    places: Places,
    launch: Launch,
    limits: dict[str, float],
    *,
    state: Path,
    grants: Grants,
) -> WallPlan:
    """Return the walls that *launch* gets here.

    Raises:
        ContainmentError: a grant would open what must stay closed; the program itself is closed.
        HostError: a place of the run cannot be looked at.
    """
    try:
        ground = ground_of(capsule, places, launch, state)
    except OSError as exc:
        raise HostError("E-HOST-031", f"the walls cannot be planned: {exc}") from exc
    there = replace(grants, read=_there(grants.read), write=_there(grants.write))
    walls = plan_walls(ground, there, ResourceLimits.of(limits), find_machine())
    _check_program(launch.argv[0], walls)
    return walls


def _check_program(program: str, walls: WallPlan) -> None:
    """Refuse a program that its own walls would keep closed."""
    if walls.rules is None:
        return
    for path in (program, os.path.realpath(program)):
        if not any(is_beneath(path, opened) for opened, _ in walls.rules):
            raise ContainmentError(
                "E-CAP-004",
                f"the harness's program {program} lies where the harness may not read: {path}",
                "Have its folder on PATH, or ask for what it was installed into under [capabilities]"
                " read, and grant that.",
            )


def _there(paths: Iterable[str]) -> tuple[str, ...]:
    """Return the *paths* that can be opened. Of the others a plan says that they are not there."""
    return tuple(filter(os.path.exists, paths))
