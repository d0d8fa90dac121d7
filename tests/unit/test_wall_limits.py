"""The mechanism for each limit: the best that there is."""

from __future__ import annotations

from msgspec.structs import replace

from capsule_runtime.core.machine import Hierarchies, Machine
from capsule_runtime.core.wall_limits import ResourceLimits, plan_limits

CEILINGS = ResourceLimits(
    memory=64 * 1024**2, processes=64, files=4096, disk=2**20, wall=60, cpus=1.5
)
V1 = Hierarchies("cgroup1", "/m", "/p", "/c", "/u", counts_swap=True)
V2 = Hierarchies("cgroup2", "/u", "/u", "/u", "/u", counts_swap=True)


def test_the_older_cgroups_are_one_for_each_controller() -> None:
    plan = plan_limits(CEILINGS, Machine(cgroups=V1))

    memory = str(64 * 1024**2)
    assert dict(plan.groups) == {
        "/m": (("memory.limit_in_bytes", memory), ("memory.memsw.limit_in_bytes", memory)),
        "/c": (("cpu.cfs_quota_us", "150000"),),
        "/p": (("pids.max", "64"),),
        "/u": (),
    }
    assert not plan.is_polled
    assert plan.missing == ()
    assert "DATA" not in dict(plan.rlimits)


def test_a_namespace_needs_no_cgroup_to_be_killed_by() -> None:
    plan = plan_limits(CEILINGS, Machine(cgroups=V1), has_namespace=True)

    assert list(dict(plan.groups)) == ["/m", "/c", "/p"]


def test_a_namespace_is_limited_by_the_unified_cgroup_all_the_same() -> None:
    plan = plan_limits(CEILINGS, Machine(cgroups=V2), has_namespace=True)

    assert list(dict(plan.groups)) == ["/u"]


def test_the_unified_cgroup_is_one_for_all() -> None:
    plan = plan_limits(CEILINGS, Machine(cgroups=V2))

    assert dict(plan.groups)["/u"] == (
        ("memory.max", str(64 * 1024**2)),
        ("memory.swap.max", "0"),
        ("memory.oom.group", "1"),
        ("cpu.max", "150000 100000"),
        ("pids.max", "64"),
    )
    assert plan.resources.memory == "cgroup2"


def test_without_cgroups_limits_and_looks_take_their_place() -> None:
    plan = plan_limits(CEILINGS, Machine(cgroups=Hierarchies(why="none"), tasks=100))

    assert (plan.resources.memory, plan.resources.processes) == ("rlimit+poll", "rlimit+poll")
    assert dict(plan.rlimits)["DATA"] == 1024**3  # less stops runtimes that only reserve it
    assert dict(plan.rlimits)["NPROC"] == 164
    assert plan.is_polled
    assert {one.axis for one in plan.missing} == {
        "resources.memory",
        "resources.processes",
        "resources.cpu",
    }


def test_a_count_by_user_means_nothing_to_root() -> None:
    plan = plan_limits(CEILINGS, Machine(is_root=True))

    assert plan.resources.processes == "poll"
    assert "NPROC" not in dict(plan.rlimits)


def test_who_is_counted_alone_is_held_to_the_exact_number() -> None:
    plan = plan_limits(CEILINGS, Machine(is_root=True, tasks=100), is_counted_alone=True)

    assert plan.resources.processes == "rlimit"
    assert dict(plan.rlimits)["NPROC"] == CEILINGS.processes


def test_no_limit_is_above_what_was_inherited() -> None:
    machine = Machine(cgroups=V1, hard_limits={"NOFILE": 1024, "FSIZE": 2**40})

    plan = plan_limits(CEILINGS, machine)

    assert (dict(plan.rlimits)["NOFILE"], plan.limits["files"]) == (1024, 1024)
    assert dict(plan.rlimits)["FSIZE"] == 2**20


def test_no_share_of_processors_is_no_throttle() -> None:
    plan = plan_limits(replace(CEILINGS, cpus=0), Machine(cgroups=V1))

    assert "/c" not in dict(plan.groups)
    assert plan.resources.cpu == "rlimit"
