"""What was found out about this machine: values only. `host/machine.py` looks."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field


class Hierarchies(Struct, frozen=True):
    """The folders in which cgroups can be made; "" where there is none for a purpose."""

    kind: str = "none"
    """`cgroup2`, `cgroup1` or `none`."""
    memory: str = ""
    processes: str = ""
    cpu: str = ""
    kill: str = ""
    """Where a whole cgroup can be killed at once."""
    counts_swap: bool = False
    why: str = ""
    """Why there is no limit on memory or processes to be had."""

    @property
    def places(self) -> tuple[str, ...]:
        """Return all of the folders."""
        return tuple(filter(None, (self.memory, self.processes, self.cpu, self.kill)))


class Machine(Struct, frozen=True):
    """What walls can be built of."""

    landlock_abi: int = 0
    landlock_errata: int = 0
    landlock_why: str = "the kernel has none"
    cgroups: Hierarchies = field(default_factory=Hierarchies)
    hard_limits: Mapping[str, int] = field(default_factory=dict[str, int])
    """Limits that were inherited, by their names; those that are not there are infinite."""
    is_root: bool = False
    drops_bounding: bool = False
    """Whether the bounding set of capabilities is ours to empty."""
    tasks: int = 0
    """How many processes and threads there are, of everybody."""
    processors: int = 1
