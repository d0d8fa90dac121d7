"""Which mechanism keeps which limit here: the best that was found."""

from __future__ import annotations

from msgspec import Struct

from capsule_runtime.core.containment import Missing, Resources
from capsule_runtime.core.limits import LimitPassed
from capsule_runtime.core.machine import Hierarchies, Machine
from capsule_runtime.core.outcome import Reason
from capsule_runtime.core.units import show_size

Settings = tuple[tuple[str, str], ...]

DATA_BYTES_AT_LEAST = 1024**3
"""Less data than that stops runtimes that only reserve it."""
_CPU_SECONDS_TO_SPARE = 60
_PERIOD_MICROSECONDS = 100_000


class ResourceLimits(Struct, frozen=True):
    """What a run's processes may use together; files are counted for each of them."""

    memory: int
    processes: int
    files: int
    disk: int
    wall: float
    cpus: float = 0.0
    """How many processors' worth of time; 0 is all of them."""

    @classmethod
    def of(cls, named: dict[str, float]) -> ResourceLimits:
        """Take the limits out of the form in which they are recorded."""
        return cls(
            memory=int(named["memory_bytes"]),
            processes=int(named["processes"]),
            files=int(named["files"]),
            disk=int(named["disk_bytes"]),
            wall=named["wall_seconds"],
            cpus=named.get("cpus", 0.0),
        )


class LimitPlan(Struct, frozen=True):
    """What is set where, and who looks."""

    rlimits: tuple[tuple[str, int], ...]
    groups: tuple[tuple[str, Settings], ...]
    resources: Resources
    limits: dict[str, float]
    missing: tuple[Missing, ...]

    @property
    def is_polled(self) -> bool:
        """Whether somebody must look at the tree: the kernel does not."""
        return "poll" in self.resources.memory + self.resources.processes


def plan_limits(
    asked: ResourceLimits,
    machine: Machine,
    *,
    is_counted_alone: bool = False,
    has_namespace: bool = False,
) -> LimitPlan:
    """Choose a mechanism for each of *asked*.

    *is_counted_alone* says that the kernel counts the tasks of the run's user, and no others of his.
    *has_namespace* says that the processes of the run have one of their own.
    """
    cgroups, kind = machine.cgroups, machine.cgroups.kind
    wanted = {"CORE": 0, "NOFILE": asked.files, "FSIZE": asked.disk}
    wanted["CPU"] = int(asked.wall * machine.processors) + _CPU_SECONDS_TO_SPARE
    memory = processes = kind
    if not cgroups.memory:
        memory = "rlimit+poll"
        wanted["DATA"] = max(asked.memory, DATA_BYTES_AT_LEAST)
    if not cgroups.processes and is_counted_alone:
        processes, wanted["NPROC"] = "rlimit", asked.processes
    elif not cgroups.processes:
        # The kernel counts all tasks of the user, so this holds a bomb, not the exact number.
        processes = "poll" if machine.is_root else "rlimit+poll"
        if not machine.is_root:
            wanted["NPROC"] = machine.tasks + asked.processes
    rlimits = {
        name: min(limit, machine.hard_limits.get(name, limit)) for name, limit in wanted.items()
    }
    throttled = asked.cpus and cgroups.cpu
    limits: dict[str, float] = {
        "memory_bytes": asked.memory,
        "processes": asked.processes,
        "files": rlimits["NOFILE"],
        "disk_bytes": rlimits["FSIZE"],
        "cpu_seconds_per_process": rlimits["CPU"],
    }
    if throttled:
        limits["cpus"] = asked.cpus
    return LimitPlan(
        rlimits=tuple(rlimits.items()),
        groups=_groups(asked, cgroups, has_namespace=has_namespace),
        resources=Resources(
            memory, processes, "rlimit", "fsize+poll", kind if throttled else "rlimit"
        ),
        limits=limits,
        missing=tuple(_missing(asked, cgroups)),
    )


def _groups(
    asked: ResourceLimits, cgroups: Hierarchies, *, has_namespace: bool
) -> tuple[tuple[str, Settings], ...]:
    groups: dict[str, Settings] = {}

    def add(parent: str, *settings: tuple[str, str]) -> None:
        if parent:
            groups[parent] = (*groups.get(parent, ()), *settings)

    memory, quota = str(asked.memory), str(int(asked.cpus * _PERIOD_MICROSECONDS))
    if cgroups.kind == "cgroup2":
        swap = (("memory.swap.max", "0"),) if cgroups.counts_swap else ()
        add(cgroups.memory, ("memory.max", memory), *swap, ("memory.oom.group", "1"))
        if asked.cpus:
            add(cgroups.cpu, ("cpu.max", f"{quota} {_PERIOD_MICROSECONDS}"))
    else:
        swap = (("memory.memsw.limit_in_bytes", memory),) if cgroups.counts_swap else ()
        add(cgroups.memory, ("memory.limit_in_bytes", memory), *swap)
        if asked.cpus:
            add(cgroups.cpu, ("cpu.cfs_quota_us", quota))
    add(cgroups.processes, ("pids.max", str(asked.processes)))
    # A namespace dies at once with its first process; to enter one cgroup more costs 10 ms.
    if groups and not has_namespace:
        add(cgroups.kill)
    return tuple(groups.items())


def _missing(asked: ResourceLimits, cgroups: Hierarchies) -> list[Missing]:
    wanted = {"memory": cgroups.memory, "processes": cgroups.processes}
    if asked.cpus:
        wanted["cpu"] = cgroups.cpu
    why = cgroups.why or "no hierarchy has the controller"
    return [
        Missing(f"resources.{name}", "cgroup", why) for name, folder in wanted.items() if not folder
    ]


def memory_passed(limit: float, observed_bytes: int | None = None, kills: int = 0) -> LimitPassed:
    """Return the end of a run that used too much memory."""
    saw = (
        f"observed {show_size(observed_bytes)}"
        if observed_bytes is not None
        else f"the kernel had to end {kills or 1} of its processes"
    )
    what = f"the run used more than its memory limit of {show_size(int(limit))} ({saw})"
    return LimitPassed(Reason.MEMORY, what)


def processes_passed(limit: float, observed: int | None = None, refusals: int = 0) -> LimitPassed:
    """Return the end of a run that started too many processes or threads."""
    saw = f"observed {observed}" if observed is not None else f"{refusals} more were refused"
    what = f"the run has more than its limit of {limit:g} processes and threads ({saw})"
    return LimitPassed(Reason.PROCESSES, what)


def disk_passed(limit: float, observed_bytes: int) -> LimitPassed:
    """Return the end of a run that wrote too much."""
    what = f"the run wrote more than its disk limit of {show_size(int(limit))}"
    return LimitPassed(Reason.DISK, f"{what} (observed {show_size(observed_bytes)})")


def file_passed(limit: float) -> LimitPassed:
    """Return the end of a harness that was killed for writing too large a file."""
    what = f"the run wrote a file larger than its disk limit of {show_size(int(limit))}"
    return LimitPassed(Reason.DISK, what)
