"""What a scoped run may open of the machine that it shares."""

from __future__ import annotations

import pytest

from capsule_runtime.core.grants import Grants
from capsule_runtime.core.machine import Machine
from capsule_runtime.core.sandbox_plan import Ground, Program
from capsule_runtime.core.scoped_walls import Scoping, plan_scoped
from capsule_runtime.core.wall_limits import ResourceLimits

CEILINGS = ResourceLimits(memory=2**30, processes=64, files=128, disk=2**30, wall=60)
MACHINE = Machine(landlock_abi=7, landlock_errata=7, landlock_why="")
GROUND = Ground(
    capsule="/caps/one",
    workdir="/work",
    workdir_mode="rw",
    writable=("/srv/home",),
    agent="/lib/agent",
    program=Program(files=("/tools/bin/x",)),
    search_path=(),
    system=("/usr",),
    devices=("/dev/null", "/dev/tty", "/dev/ptmx", "/dev/pts"),
    shared=(),
    git=(),
    caller_home="/people/me",
    state="/srv",
    credentials=(),
)


@pytest.mark.parametrize(
    ("user", "devices"),
    [
        (None, ["/dev/null", "/dev/ptmx"]),
        (2_000_000_007, ["/dev/null", "/dev/ptmx", "/dev/pts"]),
    ],
    ids=["the caller", "nobody else"],
)
def test_terminals_have_names_only_where_nobody_else_is_the_runs_user(
    user: int | None, devices: list[str]
) -> None:
    scoping = Scoping(b"told", b"refused", True, user)

    walls = plan_scoped(GROUND, Grants(), CEILINGS, MACHINE, scoping)

    assert walls.rules is not None
    assert [path for path, kind in walls.rules if kind == "device"] == devices
