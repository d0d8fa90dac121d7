"""The walls of a scoped run: no namespaces to be had, so Landlock, filters and a broker."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from capsule_runtime.core.containment import Axes, Containment, Mechanism
from capsule_runtime.core.doors import NO_DOORS, DoorPlan
from capsule_runtime.core.grants import Grants, Tier
from capsule_runtime.core.machine import Machine
from capsule_runtime.core.reach import barring, check_reach
from capsule_runtime.core.sandbox_plan import (
    SCOPES_SINCE_ABI,
    Ground,
    WallPlan,
    check_grants,
    readable,
)
from capsule_runtime.core.scope import DEVICES, TERMINALS, Scope, shift_for
from capsule_runtime.core.wall_limits import LimitPlan, ResourceLimits, plan_limits

SCOPED: Tier = "scoped"
TRUNCATES_SINCE_ABI = 3
CAVEATS = (
    "names, sizes, modes and times of files outside can be seen, and so can names of processes",
    "what the harness writes, it can also run",
)
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/opt")


class Scoping(Struct, frozen=True):
    """What a scope is made with."""

    told: bytes
    refused: bytes
    mediates: bool
    user: int | None = None
    doors: DoorPlan = NO_DOORS
    shifts: bool = True
    """Whether the harness is shown the caller's folders as its own; else it has only its own ones."""


def plan_scoped(
    ground: Ground, grants: Grants, asked: ResourceLimits, machine: Machine, scoping: Scoping
) -> WallPlan:
    """Decide the walls of one scoped run. Raises as `plan_walls`."""
    check_grants(ground, grants)
    has_only_own = scoping.user is not None and not scoping.shifts
    if has_only_own:
        check_reach(ground, grants)
    limits = plan_limits(asked, machine)
    roots = (*ground.writable, *grants.write)
    if ground.workdir_mode != "ro":
        roots = (*roots, ground.workdir)
    may_read = (*readable(ground), *grants.read, ground.workdir)
    if has_only_own:  # No rule is made of what the run's user could not name.
        may_read = tuple(path for path in may_read if not barring(ground, path))
    scope = Scope(
        told=scoping.told,
        refused=scoping.refused,
        roots=tuple(dict.fromkeys(roots)),
        user=scoping.user,
        shift=shift_for(scoping.user, roots, may_read, ground.closed) if scoping.shifts else None,
        doors=scoping.doors,
        mediates=scoping.mediates,
    )
    report = Containment(
        tier=SCOPED,
        axes=_axes(limits, scoping, machine),
        mechanism=Mechanism(machine.landlock_abi, machine.landlock_errata, machine.cgroups.kind),
        limits=limits.limits,
        caveats=CAVEATS,
        missing=limits.missing,
    )
    devices = DEVICES if scoping.user is None else (*DEVICES, *TERMINALS)
    rules = tuple(dict.fromkeys(_rules(ground, may_read, roots, devices)))
    drops_bounding = machine.drops_bounding
    return WallPlan(rules, machine.landlock_abi, drops_bounding, limits, report, scope=scope)


def why_not_scoped(machine: Machine, *, has_own_user: bool) -> str:
    """Say what of Landlock is missing for a scoped run; "" if nothing is."""
    abi = machine.landlock_abi
    if not abi:
        return machine.landlock_why
    if abi < TRUNCATES_SINCE_ABI:
        return f"Landlock {abi} keeps no file from being cut to nothing; 3 does (Linux 6.2)"
    if abi < SCOPES_SINCE_ABI and not has_own_user:
        return f"Landlock {abi} keeps no signals; 6 does (Linux 6.12)"
    return ""


def _rules(
    ground: Ground, may_read: tuple[str, ...], roots: tuple[str, ...], devices: tuple[str, ...]
) -> Iterator[tuple[str, str]]:
    for path in ground.system:
        if path in _SYSTEM:
            yield path, "read"
    for path in ground.etc:
        yield path, "look"
    yield "/proc", "look"
    for path in ground.devices:
        if path in devices:
            yield path, "device"
    for path in may_read:
        yield path, "read"
    for path in roots:
        yield path, "write"


def _axes(limits: LimitPlan, scoping: Scoping, machine: Machine) -> Axes:
    has_scopes = machine.landlock_abi >= SCOPES_SINCE_ABI
    user = "" if scoping.user is None else f",uid={scoping.user}"
    return Axes(
        fs="denied",
        tmp="own",
        net="mediated" if scoping.mediates else "blocked",
        proc="uid" if scoping.user is not None else "landlock" if has_scopes else "shared",
        kill="warden",
        resources=limits.resources,
        priv=f"no-caps,nnp{user}",
        syscalls="filtered",
    )
