"""What a harness says it is behind is compared with the plan, word by word."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from msgspec.structs import replace

from capsule_runtime.core.grants import Grants
from capsule_runtime.core.machine import Hierarchies, Machine
from capsule_runtime.core.namespaces import Namespaces
from capsule_runtime.core.sandbox_plan import Ground, Program, WallPlan, plan_walls
from capsule_runtime.core.scope import Scope
from capsule_runtime.core.seal import Sources, seal
from capsule_runtime.core.seen_places import SeenPlaces
from capsule_runtime.core.wall_limits import ResourceLimits
from capsule_runtime.core.wall_report import differences, read_report

CAGE = "capsule-x-1-1"
OURS = {"mnt": 1, "pid": 2, "net": 3, "user": 4}
APART = {name: number + 10 for name, number in OURS.items()}
CGROUPS = ("/", f"/a/{CAGE}", f"/{CAGE}")


def planned() -> WallPlan:
    ground = Ground(
        "/caps", "/work", "rw", (), "/agent", Program(), (), (), (), (), (), "/me", "/state", ()
    )
    machine = Machine(
        landlock_abi=7, cgroups=Hierarchies("cgroup1", "/m", "/p"), drops_bounding=True
    )
    return plan_walls(ground, Grants(), ResourceLimits(2**30, 64, 128, 2**30, 60), machine)


def told(**changed: Any) -> dict[str, Any]:
    """Return the report of a child that did all that was planned, but for what *changed*."""
    plan = planned()
    assert plan.rules is not None
    return {
        "landlock": 7,
        "rules": len(plan.rules),
        "sees_root": False,
        "parent": 1,
        "reaches_parent": False,
        "limits": tuple((name, limit, limit) for name, limit in plan.limits.rlimits),
        "descriptors": [0, 1, 2, 3],
        "users": [1000] * 6,
        "interfaces": ["lo", "eth0"],
        "namespaces": {**OURS},
        "numbers": [2, 2],
        **dict.fromkeys(("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"), "0" * 16),
        "NoNewPrivs": "1",
        "Umask": "0077",
        "Seccomp": "0",
    } | changed


def wrong(plan: WallPlan, told: dict[str, Any], cgroups: Iterable[str] = CGROUPS) -> list[str]:
    return differences(plan, read_report(told, cgroups, OURS), CAGE)


def test_what_was_planned_is_no_difference() -> None:
    assert wrong(planned(), told()) == []


def test_a_cgroup_that_was_not_entered_is_named() -> None:
    assert wrong(planned(), told(), [f"/{CAGE}"]) == ["in 1 cgroups, planned 2"]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"landlock": 0}, "Landlock ABI 0, planned 7"),
        ({"rules": 1}, "1 rules for files"),
        ({"sees_root": True}, "/ can be listed"),
        ({"reaches_parent": True}, "its burier can be signalled"),
        ({"limits": ()}, "limit NOFILE is None, planned 128"),
        ({"limits": (("NOFILE", 128, -1),)}, "limit NOFILE is (128, -1)"),
        ({"descriptors": [0, 1, 2, 3, 4]}, "open descriptors"),
        ({"CapEff": "00000000a80425fb"}, "effective capabilities 00000000a80425fb"),
        ({"CapBnd": "0000000000000001"}, "bounding capabilities"),
        ({"NoNewPrivs": "0"}, "new privileges can be had"),
        ({"Umask": "0022"}, "umask 0022"),
    ],
)
def test_each_difference_is_named(changed: dict[str, Any], words: str) -> None:
    found = wrong(planned(), told(**changed))

    assert any(one.startswith(words) for one in found), found


def sealed(user: int | None = None) -> WallPlan:
    found = Namespaces("rootns" if user else "userns", "/usr/bin/bwrap", idler="/usr/bin/cat")
    sources = Sources((), "/work", True, (), (), (), (), (), 1024, b"")
    root = seal(sources, SeenPlaces("/work", "/home/agent", "/out"), Grants(), found, user)
    return replace(planned(), seal=root)


def told_inside(**changed: Any) -> dict[str, Any]:
    return told(**{"parent": 0, "interfaces": ["lo"], "namespaces": {**APART}} | changed)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({}, []),
        ({"parent": 7}, ["among the processes of 7"]),
        ({"interfaces": ["lo", "eth0"]}, ["interfaces ('lo', 'eth0')"]),
        ({"namespaces": APART | {"net": 3}}, ["in the namespaces of its caller: net"]),
        ({"namespaces": {"mnt": 9, "pid": 9, "net": 9}}, ["in the namespaces of its caller: user"]),
        ({"numbers": [2, 77]}, ["its /proc shows the processes of others, and itself as 77"]),
    ],
)
def test_a_sealed_run_is_in_no_namespace_of_others(
    changed: dict[str, Any], words: list[str]
) -> None:
    assert wrong(sealed(), told_inside(**changed)) == words


def test_a_run_that_root_seals_may_have_the_user_namespace_of_root() -> None:
    plan = sealed(user=2_000_000_001)
    report = told_inside(namespaces=APART | {"user": OURS["user"]}, users=[2_000_000_001] * 6)

    assert wrong(plan, report) == []


def test_a_user_in_the_group_of_root_is_not_root() -> None:
    plan = replace(planned(), scope=Scope(b"", b"", (), None, None))

    assert "it is root" not in wrong(plan, told(users=[1000, 1000, 1000, 0, 0, 0]))
    assert "it is root" in wrong(plan, told(users=[1000, 0, 1000, 5, 5, 5]))
