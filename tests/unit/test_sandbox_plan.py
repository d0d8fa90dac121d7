"""Which files a run may open, and what is said of it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from capsule_runtime import ContainmentError, UsageError
from capsule_runtime.core.containment import in_one_line
from capsule_runtime.core.grants import Grants
from capsule_runtime.core.machine import Machine
from capsule_runtime.core.sandbox_plan import Ground, Program, WallPlan, may_open, plan_walls
from capsule_runtime.core.wall_limits import ResourceLimits

NOTHING = Grants()
CEILINGS = ResourceLimits(memory=2**30, processes=64, files=128, disk=2**30, wall=60)
MACHINE = Machine(landlock_abi=7, landlock_errata=7, landlock_why="")
GROUND = Ground(
    capsule="/caps/one",
    workdir="/work",
    workdir_mode="rw",
    writable=("/state/c/home", "/state/c/tmp", "/state/r/out"),
    agent="/lib/agent",
    program=Program(files=("/tools/bin/x",), prefixes=("/tools",)),
    search_path=("/usr/bin",),
    system=("/usr", "/etc"),
    devices=("/dev/null",),
    shared=("/tmp",),
    git=("/repo/.git",),
    caller_home="/people/me",
    state="/state",
    credentials=("/people/me/.ssh", "/people/me/.local/share/keyrings"),
)


def planned(
    ground: Ground = GROUND, grants: Grants = NOTHING, machine: Machine = MACHINE
) -> WallPlan:
    return plan_walls(ground, grants, CEILINGS, machine)


def access(plan: WallPlan) -> dict[str, str]:
    assert plan.rules is not None
    return dict(plan.rules)


def test_every_place_has_its_access() -> None:
    assert access(planned()) == {
        "/usr": "read",
        "/etc": "read",
        "/proc": "look",
        "/dev/null": "device",
        "/tmp": "write",
        "/tools/bin/x": "read",
        "/tools": "read",
        "/usr/bin": "read",
        "/caps/one": "read",
        "/lib/agent": "read",
        "/repo/.git": "read",
        "/work": "write",
        "/state/c/home": "write",
        "/state/c/tmp": "write",
        "/state/r/out": "write",
    }


def test_a_work_directory_to_be_read_is_only_read() -> None:
    assert access(planned(replace(GROUND, workdir_mode="ro")))["/work"] == "read"


def test_grants_come_on_top() -> None:
    found = access(planned(grants=Grants(read=("/data",), write=("/cache",))))

    assert (found["/data"], found["/cache"]) == ("read", "write")


@pytest.mark.parametrize(
    "path",
    ["/", "/state", "/state/runs", "/people/me", "/people/me/.ssh/id", "/proc", "/run/x", "/dev"],
)
def test_a_grant_never_opens_the_state_or_a_login(path: str) -> None:
    with pytest.raises(ContainmentError, match=f"{path} cannot be granted") as refused:
        planned(grants=Grants(read=(path,)))

    assert refused.value.code == "E-CAP-003"


@pytest.mark.parametrize("name", ["LD_PRELOAD", "PATH", "https_proxy", "HOME"])
def test_a_grant_never_gives_a_variable_that_loads_code(name: str) -> None:
    with pytest.raises(UsageError, match=name):
        planned(grants=Grants(env=(name,)))


@pytest.mark.parametrize(
    ("prefix", "opens"),
    [
        ("/", False),
        ("/people", False),
        ("/people/me", False),
        ("/people/me/.local", False),
        ("/people/me/.ssh", False),
        ("/state/tools", False),
        ("/people/me/.venv", True),
        ("/opt/tool", True),
    ],
)
def test_the_prefix_of_a_program_opens_no_home_no_state_and_no_login(
    prefix: str, opens: bool
) -> None:
    ground = replace(GROUND, program=Program(prefixes=(prefix,)))

    assert may_open(prefix, GROUND) is opens
    assert (prefix in access(planned(ground))) is opens


def test_no_folder_of_the_search_path_opens_a_home() -> None:
    assert "/people/me" not in access(planned(replace(GROUND, search_path=("/people/me",))))


def test_without_landlock_the_report_says_what_is_open() -> None:
    plan = planned(replace(GROUND, workdir_mode="ro"), machine=Machine(landlock_why="too old"))

    assert plan.rules is None
    assert (plan.report.axes.fs, plan.report.axes.proc) == ("none", "shared")
    assert any("nothing enforces it" in caveat for caveat in plan.report.caveats)
    assert {one.axis: one.why for one in plan.report.missing}["fs"] == "too old"
    assert "every file of yours is open to it" in in_one_line(plan.report)


def test_before_scopes_processes_are_shared() -> None:
    plan = planned(machine=replace(MACHINE, landlock_abi=5))

    assert not plan.is_scoped
    assert (plan.report.axes.fs, plan.report.axes.proc) == ("none (metadata)", "shared")
    assert any("end what watches it" in caveat for caveat in plan.report.caveats)


@pytest.mark.parametrize("workdir", ["/", "/people/me", "/people/me/.ssh"])
def test_a_work_directory_around_a_login_is_told(workdir: str) -> None:
    found = planned(replace(GROUND, workdir=workdir)).report.caveats

    told = [caveat for caveat in found if "in the work directory, so" in caveat]
    assert len(told) == 1
    assert ".ssh" in told[0]


def test_a_state_in_a_shared_folder_is_told() -> None:
    found = planned(replace(GROUND, state="/tmp/state")).report.caveats

    assert "/tmp/state lies in /tmp, so it is open to the harness" in found


def test_a_work_directory_that_holds_the_home_has_one_caveat_for_all_of_it() -> None:
    home = "/people/me"
    credentials = tuple(f"{home}/{name}" for name in (".ssh", ".netrc", ".config/gh"))
    ground = replace(GROUND, workdir=home, state=f"{home}/.state/capsule", credentials=credentials)

    found = [it for it in planned(ground).report.caveats if "open to the harness" in it]

    assert found == [
        "these lie in the work directory, so they are open to the harness:"
        " /people/me/.state/capsule, /people/me/{.ssh,.netrc}, /people/me/.config/gh"
    ]
