"""Notice that a run uses too much, and stop it. One task looks, for all runs of a supervisor.

The kernel holds a run that has cgroups, so there is time to look: often after the start, then ever
less, and least while the run is silent, for whoever loses a process says something. The disk is
looked at the sooner, the closer it is to its limit: nothing grows faster than the rate below. So two
hundred idle runs cost next to nothing.
"""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from signal import SIGXFSZ
from typing import Any

import anyio
import anyio.to_thread
from msgspec import Struct

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

_SOONEST, _LATEST, _LATEST_SILENT = 0.25, 10.0, 120.0
_LATEST_TREE = 1.0
_DISK_BYTES_A_SECOND = 2**30

Start = Callable[..., object]
"""How a task of the attempt is started."""


class RunResources:
    """The limits of one attempt that are about things rather than time."""

    __slots__ = (
        "_ask_stop",
        "_began",
        "_burier",
        "_cgroups",
        "_count_at",
        "_is_counting",
        "_limits",
        "_pause",
        "_places",
        "_progress",
        "_seen",
        "_start",
        "_tree",
        "_tree_at",
        "_tree_pause",
        "disk_full_at",
        "disks",
        "due",
    )

    def __init__(
        self,
        plan: LimitPlan,
        tree: Tree,
        places: tuple[str, ...],
        progress: Callable[[], object],
        ask_stop: Callable[[Reason, str], Awaitable[None]],
    ) -> None:
        """*places* are where what the run writes is counted; *progress* differs when it has spoken."""
        self._tree = tree
        self._cgroups = (tree.cage, plan.groups)
        self._places = places
        self._progress, self._seen = progress, progress()
        self._ask_stop = ask_stop
        self._start: Start | None = None
        self._is_counting = False
        self._limits = plan.limits
        self._began = time.time()
        self.disks = disks_of(places)
        self.disk_full_at = used_bytes(self.disks.values()) + plan.limits["disk_bytes"]
        """How much of its disks is used when the run itself may have used too much of them."""
        self._burier = burier_of(tree.pid) if plan.is_polled else None
        self._pause = self._tree_pause = _SOONEST
        self._count_at = 0.0
        self._tree_at = math.inf if self._burier is None else 0.0
        self.due = 0.0

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

    def begin(self, start: Start) -> None:
        """Have what must be waited for done by tasks that *start* starts."""
        self._start = start

    def look(self, now: float) -> None:
        """Look at what is due, and ask the run to stop if it is too much."""
        passed: LimitPassed | None
        try:
            passed = self._look(now)
        except OSError as exc:
            passed = LimitPassed(Reason.HOST_FAILED, f"cannot see what the run uses: {exc}")
        if passed is None:
            self.due = min(self._count_at, self._tree_at)
        else:
            self._stop(passed)

    def count_written(self) -> None:
        """Have counted what the run wrote: others write on its disks too."""
        if not self._is_counting:
            self._is_counting = True
            self._begin(self._count_written)

    def glance(self, now: float) -> None:
        """See whether the run, silent until now, has spoken: then more may happen in it."""
        if self._pause > _LATEST and self._progress() != self._seen:
            self._pause = _LATEST
            self._count_at = min(self._count_at, now + _LATEST)
            self.due = min(self.due, self._count_at)

    def _stop(self, passed: LimitPassed) -> None:
        """Ask the run to stop; nobody needs to look any more, nor to glance."""
        self._pause = 0.0
        self.due = self._count_at = self._tree_at = self.disk_full_at = math.inf
        self._begin(self._ask_stop, passed.reason, passed.message)

    def _begin(self, work: Callable[..., Awaitable[Any]], *arguments: object) -> None:
        assert self._start is not None, "looked at before its attempt could act"
        self._start(work, *arguments)

    def _look(self, now: float) -> LimitPassed | None:
        if now >= self._count_at:
            self._tree.limits_met.update(met(self._cgroups))
            if (passed := next(self.passed_at_end(None), None)) is not None:
                return passed
            self._count_at = now + self._next_pause()
        return self._look_at_tree(now) if now >= self._tree_at else None

    def _next_pause(self) -> float:
        seen, self._seen = self._seen, self._progress()
        latest = _LATEST_SILENT if seen == self._seen else _LATEST
        pause, self._pause = self._pause, min(latest, 8 * self._pause)
        return min(pause, latest)

    def _look_at_tree(self, now: float) -> LimitPassed | None:
        assert self._burier is not None
        memory, processes = self._limits["memory_bytes"], self._limits["processes"]
        pids = tree_of(self._burier)
        used, tasks = tree_memory(pids, memory), tree_tasks(pids)
        if used > memory:
            return memory_passed(memory, observed_bytes=used)
        if tasks > processes:
            return processes_passed(processes, observed=tasks)
        is_small = used < memory / 4 and tasks < processes / 4
        self._tree_pause = min(_LATEST_TREE, self._tree_pause * 2) if is_small else _SOONEST
        self._tree_at = now + self._tree_pause
        return None

    async def _count_written(self) -> None:
        # Only what changed since the start can be ours.
        look = partial(written_bytes, self._places, self._began)
        written = await anyio.to_thread.run_sync(look, abandon_on_cancel=True)
        self._is_counting = False
        if written > (limit := self._limits["disk_bytes"]):
            self._stop(disk_passed(limit, written))


class Watched(Struct, frozen=True):
    """Some disks, by a place on each, and how much of them is used when a run may be over its limit."""

    places: tuple[str, ...]
    full_at: float


class ResourceWatch:
    """The one who looks at the runs of a supervisor. `run` must be running."""

    def __init__(self, heard_at: Callable[[], float]) -> None:
        """*heard_at* tells when any of the runs said something last; its clock does not matter."""
        self._heard_at, self._heard = heard_at, 0.0
        self._runs: set[RunResources] = set()
        self._woken = anyio.Event()
        self._look_at = self._round_at = math.inf
        self._disks: dict[tuple[int, ...], Watched] = {}

    def add(self, run: RunResources, start: Start) -> None:
        """Look at *run* until it is dropped; *start* starts what must be waited for."""
        run.begin(start)
        self._runs.add(run)
        self._look_at = min(self._look_at, run.due)
        if self._round_at > anyio.current_time() + _SOONEST:
            self._woken.set()

    def drop(self, run: RunResources) -> None:
        """Look at *run* no more."""
        self._runs.discard(run)
        self._look_at = 0.0  # its folders may go, and others are looked at instead

    async def run(self) -> None:
        """Look at whatever is due, for ever, in rounds: to wake costs more than to look."""
        while True:
            self._woken = anyio.Event()
            now, heard = anyio.current_time(), self._heard_at()
            if now >= self._look_at or heard != self._heard:
                self._heard = heard
                self._look_at_runs(now)
            room = self._room()
            latest = _LATEST if self._runs else math.inf
            pause = max(_SOONEST, min(room / _DISK_BYTES_A_SECOND, latest))
            self._round_at = max(now + _SOONEST, min(now + pause, self._look_at))
            with anyio.CancelScope(deadline=self._round_at):
                await self._woken.wait()

    def _look_at_runs(self, now: float) -> None:
        self._disks = {}
        self._look_at = math.inf
        for run in self._runs:
            run.glance(now)
            if run.due <= now:
                run.look(now)
            self._look_at = min(self._look_at, run.due)
            devices = tuple(run.disks)
            watched = self._disks.get(devices)
            if watched is None or run.disk_full_at < watched.full_at:
                self._disks[devices] = Watched(tuple(run.disks.values()), run.disk_full_at)

    def _room(self) -> float:
        """Return how many bytes may be written before a run may have written too many.

        Of whoever may have done so already, it is counted.
        """
        least = math.inf
        for devices, watched in self._disks.items():
            used = used_bytes(watched.places)
            least = min(least, watched.full_at - used)
            if used > watched.full_at:
                for run in self._runs:
                    if tuple(run.disks) == devices and used > run.disk_full_at:
                        run.count_written()
        return least
