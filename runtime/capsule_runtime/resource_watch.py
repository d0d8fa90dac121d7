"""Notice that a run uses too much, and stop it.

The kernel holds a run that has cgroups, so there is time to look: often after the start, then ever
less. The disk is looked at the sooner, the closer it is to its limit: nothing grows faster than the
rate below. So an idle run costs next to nothing.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from signal import SIGXFSZ

import anyio
import anyio.to_thread

from capsule_runtime.core.limits import LimitPassed
from capsule_runtime.core.outcome import Reason
from capsule_runtime.core.wall_limits import (
    LimitPlan,
    disk_passed,
    file_passed,
    memory_passed,
    processes_passed,
)
from capsule_runtime.host.cgroup import met
from capsule_runtime.host.process import Tree
from capsule_runtime.host.usage import (
    burier_of,
    disks_of,
    largest_written,
    tree_memory,
    tree_of,
    tree_tasks,
    used_bytes,
    written_bytes,
)

_SOONEST, _LATEST = 0.25, 10.0
_LATEST_TREE = 1.0
_DISK_BYTES_A_SECOND = 2**30


class ResourceWatch:
    """The limits of one attempt that are about things rather than time."""

    def __init__(
        self,
        plan: LimitPlan,
        tree: Tree,
        places: tuple[str, ...],
        ask_stop: Callable[[Reason, str], Awaitable[None]],
    ) -> None:
        """*places* are where what the run writes is counted."""
        self._plan = plan
        self._tree = tree
        self._cgroups = (tree.cage, plan.groups)
        self._places = places
        self._ask_stop = ask_stop
        self._limits = plan.limits
        self._began = time.time()
        self._disks = disks_of(places)
        self._used = used_bytes(self._disks)

    async def run(self) -> None:
        """Stop the run when a limit is passed; go on until nothing more can be.

        Raises:
            StoreError: the log cannot be written.
        """
        async with anyio.create_task_group() as looks:
            looks.start_soon(self._look)
            if self._plan.is_polled:
                looks.start_soon(self._look_at_tree)

    def passed_at_end(self, signal: int | None) -> Iterator[LimitPassed]:
        """Yield what the end of the harness, maybe by *signal*, says of its limits."""
        if (kills := self._tree.limits_met.get("memory")) is not None:
            yield memory_passed(self._limits["memory_bytes"], kills=kills)
        if (refusals := self._tree.limits_met.get("processes")) is not None:
            yield processes_passed(self._limits["processes"], refusals=refusals)
        limit = self._limits["disk_bytes"]
        # Anybody can send the signal; only a file of that size makes it the kernel's.
        if signal == SIGXFSZ and largest_written(self._places, self._began) >= limit:
            yield file_passed(limit)

    async def _look(self) -> None:
        """Look at what the kernel counts, and at the disk."""
        pause = _SOONEST
        while True:
            self._tree.limits_met.update(met(self._cgroups))
            for passed in self.passed_at_end(None):
                return await self._ask_stop(passed.reason, passed.message)
            limit = self._limits["disk_bytes"]
            room = limit - max(0, used_bytes(self._disks) - self._used)
            if room < 0:
                # Others write on this disk too. Only what changed since the start can be ours.
                look = partial(written_bytes, self._places, self._began)
                written = await anyio.to_thread.run_sync(look, abandon_on_cancel=True)
                if written > limit:
                    passed = disk_passed(limit, written)
                    return await self._ask_stop(passed.reason, passed.message)
            await anyio.sleep(min(pause, max(_SOONEST, room / _DISK_BYTES_A_SECOND)))
            pause = min(_LATEST, 2 * pause)

    async def _look_at_tree(self) -> None:
        burier = burier_of(self._tree.pid)
        pause, memory, processes = _SOONEST, self._limits["memory_bytes"], self._limits["processes"]
        while burier is not None:
            pids = tree_of(burier)
            used, tasks = tree_memory(pids, memory), tree_tasks(pids)
            if used > memory or tasks > processes:
                passed = (
                    memory_passed(memory, observed_bytes=used)
                    if used > memory
                    else processes_passed(processes, observed=tasks)
                )
                return await self._ask_stop(passed.reason, passed.message)
            is_small = used < memory / 4 and tasks < processes / 4
            pause = min(_LATEST_TREE, pause * 2) if is_small else _SOONEST
            await anyio.sleep(pause)
