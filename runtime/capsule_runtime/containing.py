"""The walls of a run: what stands where on this machine, and the plan that comes of it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace
from msgspec.structs import replace as struct_replace

from capsule_runtime.core.doors import GATEWAY_PORT, DoorPlan
from capsule_runtime.core.grants import Grants, Tier, is_beneath
from capsule_runtime.core.namespaces import Namespaces
from capsule_runtime.core.sandbox_plan import WallPlan, plan_walls
from capsule_runtime.core.scoped_walls import SCOPED, Scoping, plan_scoped
from capsule_runtime.core.sealed_walls import SEALED, Sealing, plan_sealed
from capsule_runtime.core.seen_places import seen_places
from capsule_runtime.core.setting import Setting, TierClass
from capsule_runtime.core.wall_limits import ResourceLimits
from capsule_runtime.errors import ContainmentError, HostError, UsageError
from capsule_runtime.granting import Standing
from capsule_runtime.host import namespaces
from capsule_runtime.host.capsule import Capsule, Launch, Places
from capsule_runtime.host.ground import ground_of
from capsule_runtime.host.machine import find_machine
from capsule_runtime.host.run_users import run_users

PORTS_FROM = 1024
"""Below it, only who has the right to may listen; a harness has none."""


_WITHOUT = "--containment advisory to run without walls on the network."


class Shell(Struct, frozen=True):
    """How a run is contained: in which tier, and with what. An advisory one needs nothing."""

    tier: Tier
    sealing: Sealing | None = None
    scoping: Scoping | None = None

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

    def setting(self, places: Places) -> Setting:
        """Return where a harness finds itself, as a context keeps it."""
        if self.sealing is not None:
            seen = self.seen(places)
            return Setting("sealed", str(seen.home), str(seen.workdir))
        home, workdir = map(os.path.realpath, (places.home, places.original))
        return Setting("unsealed", home, workdir)

    def leased(self) -> Shell:
        """Return the same with a user of its own, if nobody else may run here; see `release`.

        Raises:
            HostError: E-HOST-033, none is free.
        """
        return self.of_user(run_users().lease()) if self.needs_user else self

    def release(self, *, is_kept: bool = False) -> None:
        """Give back the user that was leased, unless something of it is left."""
        made = self.sealing or self.scoping
        if made is not None and made.user is not None and not is_kept:
            run_users().release(made.user)

    def of_user(self, user: int) -> Shell:
        """Return the same for a harness that becomes *user*."""
        return self._with(user=user)

    def with_doors(self, doors: DoorPlan) -> Shell:
        """Return the same with the ways out that *doors* are; an advisory run has all.

        Raises:
            UsageError: E-USE-052, a sealed run cannot listen at that port.
        """
        port = doors.ports.get("upstream", PORTS_FROM)
        if self.sealing is not None and port < PORTS_FROM:
            raise UsageError(
                "E-USE-052",
                f"the upstream {doors.upstream} is at port {port}, and no run listens below {PORTS_FROM}",
                "Name a port from 1024 on, and have it lead there.",
            )
        return self._with(doors=doors)

    def _with(self, **changes: DoorPlan | int) -> Shell:
        sealing = self.sealing and struct_replace(self.sealing, **changes)
        scoping = self.scoping and struct_replace(self.scoping, **changes)
        return Shell(self.tier, sealing, scoping)

    @property
    def shifts(self) -> bool:
        """Whether root shows its folders to a run's user; else that has only folders of its own."""
        made = self.sealing or self.scoping
        return made is None or made.shifts

    @property
    def owner(self) -> int | None:
        """Return whose the run's own folders are while it works; None: ours."""
        made = self.sealing or self.scoping
        return None if made is None or made.shifts else made.user

    @property
    def walker(self) -> int | None:
        """Return the user that must reach by itself all that a run needs; None: it is shown it."""
        return None if self.scoping is None else self.owner

    @property
    def environment(self) -> dict[str, str]:
        """Return the variables that lead programs to the doors."""
        made = self.sealing or self.scoping
        return made.doors.environment if made else {}

    @property
    def gateway_port(self) -> int:
        """Return where a run with walls finds the gateway, on its own loopback."""
        made = self.sealing or self.scoping
        return made.doors.ports.get("gateway", GATEWAY_PORT) if made else GATEWAY_PORT

    @property
    def needs_user(self) -> bool:
        """Whether the harness must become somebody else: nothing runs as root."""
        return os.geteuid() == 0 and (self.sealing or self.scoping) is not None


ADVISORY = Shell("advisory")


def shell_of(standing: Standing, state: Path, context: TierClass | None = None) -> Shell:
    """Return the tier that a run gets here: what was named, or the strongest there is.

    Where none was named, a run in a *context* of that class stays in it, as far as the floor lets it.

    Raises:
        ContainmentError: E-CAP-001, it is weaker than the floor.
    """
    stays_sealed = context == SEALED and not standing.is_named
    if standing.floor == "advisory" and not stays_sealed:
        return ADVISORY
    found = namespaces.find_namespaces(state)
    wants_scoped = (standing.is_named or context == "unsealed") and standing.floor == "scoped"
    if found.variant and not wants_scoped:
        sealing = sealing_with(found)
        return Shell(SEALED, struct_replace(sealing, shifts=_shows(state)))
    if standing.floor == "advisory":
        return ADVISORY
    if standing.floor == SEALED:
        raise _refusal(SEALED, found.why, found.fix)
    from capsule_runtime.host.scoping import find_scopes  # it tries a broker: most have no need

    scopes = find_scopes(state)
    if not scopes.why:
        return Shell(SCOPED, scoping=struct_replace(scopes.scoping(), shifts=_shows(state)))
    raise _refusal(SCOPED, scopes.why, scopes.fix)


def _shows(state: Path) -> bool:
    """Whether a run can be shown the folders that it gets below *state* as its own."""
    if os.geteuid() != 0:
        return True
    from capsule_runtime.host.shifting import why_not_shifted  # only root has a need

    return not why_not_shifted(str(state), state)


def _refusal(tier: Tier, why: str, fix: str) -> ContainmentError:
    return ContainmentError(
        "E-CAP-001",
        f"containment {tier!r} cannot be had here: {why}",
        f"{fix} Or pass {_WITHOUT}" if fix else f"Pass {_WITHOUT}",
    )


def sealing_with(found: Namespaces) -> Sealing:
    """Return what a run is sealed with that *found* makes a root for."""
    # What only sealed runs need.
    from capsule_runtime.core.seccomp import build_filter

    filters = build_filter("sealed", os.uname().machine)
    return Sealing(found, seen_places(_Taken()), None, filters)


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
        ground = ground_of(capsule, places, launch, state, there)
    except OSError as exc:
        raise HostError("E-HOST-031", f"the walls cannot be planned: {exc}") from exc
    asked, machine = ResourceLimits.of(limits), find_machine()
    if shell.sealing is not None:
        walls = plan_sealed(ground, there, asked, machine, shell.sealing)
    elif shell.scoping is not None:
        walls = plan_scoped(ground, there, asked, machine, shell.scoping)
    else:
        walls = plan_walls(ground, there, asked, machine)
    _check_program(launch.argv[0], walls)
    return walls


class _Taken:
    """The names that are taken on this machine."""

    def __contains__(self, path: object) -> bool:
        return os.path.lexists(str(path))


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
