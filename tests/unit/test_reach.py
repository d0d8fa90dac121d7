"""What a run's own user cannot reach is refused, or not spoken of."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from capsule_runtime import ContainmentError
from capsule_runtime.core.grants import Grants
from capsule_runtime.core.machine import Machine
from capsule_runtime.core.sandbox_plan import Ground, Program, WallPlan
from capsule_runtime.core.scoped_walls import Scoping, plan_scoped
from capsule_runtime.core.wall_limits import ResourceLimits

CEILINGS = ResourceLimits(memory=2**30, processes=64, files=128, disk=2**30, wall=60)
MACHINE = Machine(landlock_abi=7, landlock_errata=7, landlock_why="")
USER = 2_000_000_007
NOTHING = Grants()
GROUND = Ground(
    capsule="/caps/one",
    workdir="/srv/state/runs/r/work",
    workdir_mode="copy",
    writable=("/srv/state/c/home", "/srv/state/c/tmp", "/srv/state/r/out"),
    agent="/lib/agent",
    program=Program(files=("/tools/bin/x",)),
    search_path=("/usr/bin",),
    system=("/usr",),
    devices=("/dev/null",),
    shared=(),
    git=(),
    caller_home="/people/me",
    state="/srv/state",
    credentials=(),
    closed=("/people/me", "/srv/state"),
    barred=("/people/me", "/srv/state", "/srv/state/runs"),
)


def planned(ground: Ground, grants: Grants = NOTHING, *, shifts: bool = False) -> WallPlan:
    scoping = Scoping(b"told", b"refused", True, USER, shifts=shifts)
    return plan_scoped(ground, grants, CEILINGS, MACHINE, scoping)


@pytest.mark.parametrize(
    ("ground", "what"),
    [
        (replace(GROUND, workdir="/people/me/work", workdir_mode="ro"), "the work directory"),
        (replace(GROUND, program=Program(files=("/people/me/bin/x",))), "the program"),
        (
            replace(GROUND, state="/people/me/state", writable=("/people/me/state/home",)),
            "own folder",
        ),
    ],
    ids=["work directory", "program", "state"],
)
def test_what_lies_where_only_root_may_enter_is_refused(ground: Ground, what: str) -> None:
    with pytest.raises(ContainmentError, match=what) as refused:
        planned(ground)

    assert refused.value.code == "E-CAP-007"
    assert "/people/me" in refused.value.message


def test_what_was_granted_to_be_read_there_is_refused() -> None:
    with pytest.raises(ContainmentError, match="granted to be read /people/me/data"):
        planned(GROUND, Grants(read=("/people/me/data",)))


def test_with_mounts_all_of_it_is_shown() -> None:
    ground = replace(GROUND, program=Program(files=("/people/me/bin/x",)))

    scope = planned(ground, shifts=True).scope

    assert scope is not None
    assert scope.shift is not None
    assert "/people/me" in scope.shift.folders
    assert not scope.owns


def test_without_mounts_a_run_has_what_it_writes() -> None:
    scope = planned(GROUND).scope

    assert scope is not None
    assert scope.shift is None
    assert scope.owns
    assert scope.roots == (*GROUND.writable, GROUND.workdir)


def test_no_rule_is_made_of_what_its_user_could_not_name() -> None:
    ground = replace(GROUND, search_path=("/usr/bin", "/people/me/.cargo/bin"))

    rules = dict(planned(ground).rules or ())

    assert "/usr/bin" in rules
    assert "/people/me/.cargo/bin" not in rules
    assert "/people/me/.cargo/bin" in dict(planned(ground, shifts=True).rules or ())
