"""The tiers that every escape is tried in. A new tier is one entry of `TIERS`."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from capsule_runtime.core.sandbox_plan import WallPlan
from capsule_runtime.core.wall_limits import ResourceLimits
from capsule_runtime.host.machine import find_machine
from capsule_runtime.host.namespaces import find_namespaces
from capsule_runtime.host.scoping import find_scopes
from support.cell import Cell

SMALL = ResourceLimits(memory=128 * 1024**2, processes=48, files=64, disk=16 * 1024**2, wall=60)
"""What a run of the corpus may use."""


@dataclass(frozen=True, slots=True)
class Tier:
    """One way to contain a run."""

    promises: str
    """The tier by the name that callers know; "" for no walls at all."""
    walls: Callable[[Cell], WallPlan | None]
    by_root: bool | None = None
    """Who starts it: root, somebody else, or (None) whoever runs the tests."""
    why_not: Callable[[], str] = lambda: ""
    """Why this machine cannot contain a run like that; "" if it can."""
    in_docker: bool = False
    """Whether it is started with no more rights than root has in a container by default."""


def _no_namespaces() -> str:
    found = find_namespaces()
    return "" if found.variant else found.why


def _no_scope() -> str:
    return find_scopes().why


TIERS = {
    "none": Tier("", lambda cell: None),
    "advisory": Tier(
        "advisory",
        lambda cell: cell.walls(ceilings=SMALL),
        None,
        lambda: find_machine().landlock_why,
    ),
    "scoped": Tier("scoped", lambda cell: cell.scoped(ceilings=SMALL), True, _no_scope),
    "scoped-user": Tier("scoped", lambda cell: cell.scoped(ceilings=SMALL), False, _no_scope),
    "docker": Tier(
        "scoped", lambda cell: cell.scoped(ceilings=SMALL), True, _no_scope, in_docker=True
    ),
    "rootns": Tier("sealed", lambda cell: cell.sealed(ceilings=SMALL), True, _no_namespaces),
    "userns": Tier("sealed", lambda cell: cell.sealed(ceilings=SMALL), False, _no_namespaces),
}


def is_ours(tier: Tier) -> bool:
    """Whether this process is who starts runs of *tier*."""
    return tier.by_root is None or tier.by_root == (os.geteuid() == 0)
