"""The walls of a run: what stands where on this machine, and the plan that comes of it."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from msgspec.structs import replace as struct_replace

from capsule_runtime.core.grants import Grants, Tier, is_beneath
from capsule_runtime.core.namespaces import Namespaces
from capsule_runtime.core.sandbox_plan import WallPlan, plan_walls
from capsule_runtime.core.seal import STUB_FILES
from capsule_runtime.core.sealed_walls import SEALED, Sealing, plan_sealed
from capsule_runtime.core.seccomp import build_filter
from capsule_runtime.core.seen_places import seen_places
from capsule_runtime.core.wall_limits import ResourceLimits
from capsule_runtime.errors import ContainmentError, HostError
from capsule_runtime.granting import Standing
from capsule_runtime.host import namespaces
from capsule_runtime.host.capsule import Capsule, Launch, Places
from capsule_runtime.host.ground import ground_of
from capsule_runtime.host.machine import find_machine


@dataclass(frozen=True, slots=True)
class Shell:
    """How a run is contained: in which tier, and with what, as far as it is sealed."""

    tier: Tier
    sealing: Sealing | None = None

    def seen(self, places: Places) -> Places:
        """Return *places* as the harness sees them."""
        if self.sealing is None:
            return places
        seen = self.sealing.seen
        return replace(
            places,
            out=Path(seen.out),
            home=Path(seen.home),
            tmp=Path(seen.tmp),
            workdir=Path(seen.workdir),
        )

    def of_user(self, user: int) -> Shell:
        """Return the same for a harness that becomes *user*."""
        assert self.sealing is not None
        return Shell(self.tier, struct_replace(self.sealing, user=user))

    @property
    def needs_user(self) -> bool:
        """Whether the harness must become somebody else: nothing runs as root."""
        return self.sealing is not None and self.sealing.namespaces.variant == "rootns"


ADVISORY = Shell("advisory")


def shell_of(standing: Standing, state: Path) -> Shell:
    """Return the tier that a run gets here: what was named, or the strongest there is.

    Raises:
        ContainmentError: E-CAP-001, it is weaker than the floor.
    """
    if standing.floor == "advisory":
        return ADVISORY
    found = namespaces.find_namespaces(state)
    if found.variant and not (standing.is_named and standing.floor == "scoped"):
        return Shell(SEALED, sealing_with(found))
    why = found.why or "this version contains a run without namespaces in no other way"
    fix = found.fix or "Leave --containment out for the strongest tier there is."
    raise ContainmentError(
        "E-CAP-001",
        f"containment {standing.floor!r} cannot be had here: {why}",
        f"{fix} Or pass --containment advisory to run without walls on the network.",
    )


def sealing_with(found: Namespaces) -> Sealing:
    """Return what a run is sealed with that *found* makes a root for."""
    filters = build_filter("sealed", platform.machine())
    return Sealing(found, seen_places(_Taken()), None, _stub(), filters)


def walls_of(
    capsule: Capsule,
    places: Places,
    launch: Launch,
    limits: dict[str, float],
    *,
    state: Path,
    grants: Grants,
    shell: Shell = ADVISORY,
) -> WallPlan:
    """Return the walls that *launch* gets here.

    Raises:
        ContainmentError: a grant would open what must stay closed; the program itself is closed.
        HostError: a place of the run cannot be looked at.
    """
    there = struct_replace(grants, read=_there(grants.read), write=_there(grants.write))
    try:
        ground = ground_of(capsule, places, launch, state, there.write)
    except OSError as exc:
        raise HostError("E-HOST-031", f"the walls cannot be planned: {exc}") from exc
    asked, machine = ResourceLimits.of(limits), find_machine()
    if shell.sealing is not None:
        walls = plan_sealed(ground, there, asked, machine, shell.sealing)
    else:
        walls = plan_walls(ground, there, asked, machine)
    _check_program(launch.argv[0], walls)
    return walls


class _Taken:
    """The names that are taken on this machine."""

    def __contains__(self, path: object) -> bool:
        return os.path.lexists(str(path))


@cache
def _stub() -> tuple[tuple[str, bytes], ...]:
    folder = Path(namespaces.__file__).parent
    return tuple((name, (folder / name).read_bytes()) for name in STUB_FILES)


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
