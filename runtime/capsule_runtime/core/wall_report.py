"""What a harness says it is behind, and whether that is what was planned."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec
from msgspec import Struct, field

from capsule_runtime.core.sandbox_plan import WallPlan

NAMESPACES = ("mnt", "uts", "ipc", "pid", "net", "cgroup", "user")
_DESCRIPTORS = (0, 1, 2, 3)
"""stdio, and the socket on which it tells us, which ends as the program runs."""
_NOTHING = 0
_INTERFACES = ("lo",)
_FILTERED = "2"
_USER_IDS = 3


class WallReport(Struct, frozen=True):
    """What the child of the burier found around itself: read back, or tried."""

    landlock: int
    rules: int
    sees_root: bool
    parent: int
    """Its number; 0 where it is outside of the namespace."""
    reaches_parent: bool
    limits: tuple[tuple[str, int, int], ...]
    """Name, soft and hard."""
    descriptors: tuple[int, ...]
    cgroups: tuple[str, ...]
    users: tuple[int, ...]
    """Real, effective and saved user; the same of the group; further groups."""
    interfaces: tuple[str, ...]
    """Of its network."""
    shared: tuple[str, ...]
    """Which of our namespaces it does not show to have left."""
    numbers: tuple[int, int]
    """Its own, and the one by which it finds itself in /proc."""
    inheritable: str = field(name="CapInh")
    permitted: str = field(name="CapPrm")
    effective: str = field(name="CapEff")
    bounding: str = field(name="CapBnd")
    ambient: str = field(name="CapAmb")
    no_new_privs: str = field(name="NoNewPrivs")
    umask: str = field(name="Umask")
    filters: str = field(name="Seccomp")


def read_report(told: object, cgroups: Iterable[str], ours: Mapping[str, int]) -> WallReport:
    """Return the report that a child wrote; in *cgroups* it is as seen from outside.

    *ours* are the numbers of our own namespaces, by name.
    """
    found = msgspec.convert(told, dict[str, object])
    its = msgspec.convert(found["namespaces"], dict[str, int])
    shared = [name for name, number in ours.items() if its.get(name, number) == number]
    return msgspec.convert({**found, "cgroups": [*cgroups], "shared": shared}, WallReport)


def differences(plan: WallPlan, report: WallReport, cage: str) -> list[str]:
    """Return what is not as planned. *cage* is the name of the run's cgroups."""
    return [
        *_about_files(plan, report),
        *_about_privileges(plan, report),
        *_about_limits(plan, report),
        *_about_cgroups(plan, report, cage),
        *_about_shell(plan, report),
        *_about_namespaces(plan, report),
    ]


def _about_files(plan: WallPlan, report: WallReport) -> Iterator[str]:
    if report.landlock != plan.landlock_abi:
        yield f"Landlock ABI {report.landlock}, planned {plan.landlock_abi}"
    if plan.rules is not None:
        if report.rules != len(plan.rules):
            yield f"{report.rules} rules for files, planned {len(plan.rules)}"
        if report.sees_root and not any(path == "/" for path, _ in plan.rules):
            yield "/ can be listed"
    if plan.is_scoped and report.reaches_parent:
        yield "its burier can be signalled"
    # In a scoped run there is one more: where the kernel tells of its calls, until it is handed out.
    expected = (*_DESCRIPTORS, len(_DESCRIPTORS)) if plan.scope is not None else _DESCRIPTORS
    if report.descriptors != expected:
        yield f"open descriptors {report.descriptors}"


def _about_privileges(plan: WallPlan, report: WallReport) -> Iterator[str]:
    sets = {
        "inheritable": report.inheritable,
        "permitted": report.permitted,
        "effective": report.effective,
        "ambient": report.ambient,
    }
    if plan.drops_bounding:
        sets["bounding"] = report.bounding
    for name, value in sets.items():
        if int(value, 16) != _NOTHING:
            yield f"{name} capabilities {value}"
    if report.no_new_privs != "1":
        yield "new privileges can be had"
    if report.umask != "0077":
        yield f"umask {report.umask}"


def _about_limits(plan: WallPlan, report: WallReport) -> Iterator[str]:
    found = {name: (soft, hard) for name, soft, hard in report.limits}
    for name, limit in plan.limits.rlimits:
        # A process of ours may have lowered its own limits since the plan was made.
        if name not in found or not all(0 <= end <= limit for end in found[name]):
            yield f"limit {name} is {found.get(name)}, planned {limit}"


def _about_cgroups(plan: WallPlan, report: WallReport, cage: str) -> Iterator[str]:
    joined = sum(path.rpartition("/")[2] == cage for path in report.cgroups)
    if joined < len(plan.groups):
        yield f"in {joined} cgroups, planned {len(plan.groups)}"


def _about_shell(plan: WallPlan, report: WallReport) -> Iterator[str]:
    if plan.seal is None and plan.scope is None:
        return
    # Group 0 is the usual one of plain users in some containers, and gives no rights by itself.
    if 0 in report.users[:_USER_IDS]:
        yield "it is root"
    if plan.user is not None and set(report.users) != {plan.user}:
        yield f"users and groups {report.users}, planned {plan.user}"
    if plan.report.axes.syscalls == "filtered" and report.filters != _FILTERED:
        yield "its calls are not filtered"


def _about_namespaces(plan: WallPlan, report: WallReport) -> Iterator[str]:
    if plan.seal is None:
        return
    if report.parent != _NOTHING:
        yield f"among the processes of {report.parent}"
    if report.interfaces != _INTERFACES:
        yield f"interfaces {report.interfaces}"
    # Root needs none of users: its runs have a user of their own.
    if shared := [name for name in report.shared if name != "user" or plan.seal.user is None]:
        yield f"in the namespaces of its caller: {', '.join(shared)}"
    own, named = report.numbers
    if own != named:
        # What is mounted at /proc was mounted for those whose processes it shows.
        yield f"its /proc shows the processes of others, and itself as {named}"
