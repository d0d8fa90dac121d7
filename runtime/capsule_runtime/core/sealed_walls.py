"""The walls of a sealed run: a root, a network and processes of its own, and Landlock inside."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from capsule_runtime.core.containment import Axes, Containment, Mechanism, Missing
from capsule_runtime.core.doors import NO_DOORS, DoorPlan
from capsule_runtime.core.grants import Grants, Tier
from capsule_runtime.core.machine import Machine
from capsule_runtime.core.namespaces import Namespaces
from capsule_runtime.core.sandbox_plan import (
    Ground,
    WallPlan,
    caveats_of_places,
    check_grants,
    readable,
)
from capsule_runtime.core.seal import Sources, seal
from capsule_runtime.core.sealed_places import check_nesting, check_workdir
from capsule_runtime.core.seen_places import SeenPlaces
from capsule_runtime.core.wall_limits import LimitPlan, ResourceLimits, plan_limits

SEALED: Tier = "sealed"
_TMP_BYTES = 1024**3
_PART_OF_MEMORY = 2
_SINCE_5_19 = 2
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/opt")


class Sealing(Struct, frozen=True):
    """What a seal is made with."""

    namespaces: Namespaces
    seen: SeenPlaces
    user: int | None
    """Whom the harness becomes where root starts it."""
    filters: bytes
    doors: DoorPlan = NO_DOORS
    shifts: bool = True
    """Whether the harness is shown the caller's folders as its own; else it has only its own ones."""


def plan_sealed(
    ground: Ground, grants: Grants, asked: ResourceLimits, machine: Machine, sealing: Sealing
) -> WallPlan:
    """Decide the walls of one sealed run. Raises as `plan_walls`."""
    check_workdir(ground)
    check_grants(ground, grants)
    check_nesting(ground, grants, sealing.seen)
    found = sealing.namespaces
    limits = plan_limits(
        asked,
        machine,
        is_counted_alone=_is_counted_alone(machine, sealing),
        has_namespace=True,
    )
    root = seal(_sources(ground, grants, asked, sealing), sealing.seen, grants, found, sealing.user)
    root = replace(root, doors=sealing.doors)
    if root.shift is not None and not sealing.shifts:
        root = replace(root, shift=replace(root.shift, folders=()))
    report = Containment(
        tier=SEALED,
        axes=_axes(limits, sealing),
        mechanism=Mechanism(
            machine.landlock_abi,
            machine.landlock_errata,
            machine.cgroups.kind,
            found.bwrap,
            found.version,
            found.digest,
            found.variant,
        ),
        limits=limits.limits,
        caveats=tuple(_caveats(ground, machine)),
        missing=(*_missing(machine), *limits.missing),
    )
    rules = root.rules if machine.landlock_abi else None
    # Only root has capabilities to drop from what bounds them; bubblewrap drops all others.
    return WallPlan(rules, machine.landlock_abi, True, limits, report, root)


def _is_counted_alone(machine: Machine, sealing: Sealing) -> bool:
    """Whether a limit on the tasks of a user counts those of the run only.

    It has a user of its own, or its namespace is what the kernel counts in: since 5.14, and this
    ABI of Landlock came with 5.19.
    """
    return sealing.user is not None or machine.landlock_abi >= _SINCE_5_19


def _sources(ground: Ground, grants: Grants, asked: ResourceLimits, sealing: Sealing) -> Sources:
    home, _, out = ground.writable
    links = dict(ground.system_links)
    return Sources(
        writable=((home, sealing.seen.home), (out, sealing.seen.out)),
        workdir=ground.workdir,
        workdir_is_writable=ground.workdir_mode != "ro",
        readable=(*readable(ground), *grants.read),
        links=ground.program.links,
        real_paths=ground.real_paths,
        system=tuple(path for path in ground.system if path in _SYSTEM and path not in links),
        system_links=ground.system_links,
        tmp_bytes=min(_TMP_BYTES, asked.memory // _PART_OF_MEMORY),
        filters=sealing.filters,
    )


def _axes(limits: LimitPlan, sealing: Sealing) -> Axes:
    user = "" if sealing.user is None else f",uid={sealing.user}"
    return Axes(
        fs="absent",
        tmp="own",
        net="isolated",
        proc="pidns",
        kill="pidns+warden",
        resources=limits.resources,
        priv=f"no-caps,nnp{user}",
        syscalls="filtered" if sealing.filters else "none",
    )


def _caveats(ground: Ground, machine: Machine) -> Iterator[str]:
    yield "what the harness writes, it can also run"
    yield from caveats_of_places(ground)
    if not machine.landlock_abi:
        yield "its own init process is of its own user: it can be looked into"


def _missing(machine: Machine) -> Iterator[Missing]:
    if not machine.landlock_abi:
        yield Missing("fs", "landlock", machine.landlock_why)
