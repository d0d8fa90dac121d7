"""The runs of the state directory that this supervisor does not own, in its caller's hands.

Whoever follows one holds nothing between two frames: the watch on the run's bell belongs to the
supervisor, begins when somebody waits, and ends when for a while nobody does.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from weakref import WeakValueDictionary

import anyio

from capsule_runtime.core.chain import Row
from capsule_runtime.core.log import Record
from capsule_runtime.core.outcome import Reason
from capsule_runtime.embedding import Frames, RunResult, result_of
from capsule_runtime.errors import StoreError, UsageError
from capsule_runtime.frames import Frame
from capsule_runtime.host.bell import Bell
from capsule_runtime.host.feed import Follower
from capsule_runtime.runs import Runs

_IDLE_SECONDS = 10.0
"""How long a watch outlives the last one who waited."""
_LOOK_SECONDS = 1.0

Shelter = Callable[[Callable[[], Awaitable[None]]], None]
"""Begin something that the supervisor ends."""


class OutsideFeed:
    """What others commit of one run: the same to a follower as the feed of an own run."""

    def __init__(self, runs: Runs, run: str, shelter: Shelter) -> None:
        self._runs = runs
        self._run = run
        self._shelter = shelter
        self._waiting = 0
        self._armed: anyio.Event | None = None
        self._changed = anyio.Event()
        self._failure: StoreError | None = None

    def rows(self, after: int) -> Sequence[Row]:
        """Return the next rows that reach beyond entry *after*."""
        return self._runs.page(self._run, after)

    async def grown(self, after: int) -> bool:
        """Wait until there is something beyond entry *after*; False when there never will be.

        Raises:
            StoreError: the end of a dead owner's run could not be written.
        """
        while not self.rows(after):
            if self._runs.has_ended(self._run):
                return bool(self.rows(after))
            self._waiting += 1
            try:
                await self._change(after)
            finally:
                self._waiting -= 1
        return True

    async def _change(self, after: int) -> None:
        """Wait until something may have changed since the caller looked."""
        if self._armed is None:
            self._armed = anyio.Event()
            self._shelter(self._watch)
        await self._armed.wait()
        changed = self._changed
        # What was committed before the watch was armed rings no more.
        if not (self.rows(after) or self._runs.has_ended(self._run)):
            await changed.wait()
        if failure := self._failure:
            raise StoreError(failure.code, failure.message, failure.hint) from failure

    async def _watch(self) -> None:
        """Tell all who wait of each ring, until nobody did for a while."""
        self._failure = None
        try:
            async with self._runs.bell(self._run) as bell:
                self._runs.attend(self._run, bell)
                assert self._armed is not None  # it is what made us begin
                self._armed.set()
                await self._tell(bell)
        except StoreError as failure:
            self._failure = failure
        finally:
            armed, self._armed = self._armed, None
            if armed is not None:
                armed.set()
            self._ring()

    async def _tell(self, bell: Bell) -> None:
        idle_since = anyio.current_time()
        while True:
            with anyio.move_on_after(_LOOK_SECONDS) as looking:
                await bell.rung()
            self._runs.attend(self._run, bell)
            if self._waiting:
                idle_since = anyio.current_time()
            elif anyio.current_time() - idle_since > _IDLE_SECONDS:
                return
            if looking.cancelled_caught:
                await self._runs.recover()
            self._ring()

    def _ring(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()


class KnownRun:
    """A run that others own, or that has ended: a `RunHandle`."""

    def __init__(self, runs: Runs, run: str, shelter: Shelter) -> None:
        self._id = run
        self._runs = runs
        self._feed = OutsideFeed(runs, run, shelter)

    @property
    def id(self) -> str:
        return self._id

    def frames(self, after: int = 0) -> AsyncIterator[Frame]:
        return Frames(Follower(self._feed, after))

    async def wait(self) -> RunResult:
        record = Record()
        async for row in Follower(self._feed, 0):
            record.apply(row.body)
        return result_of(record, self._runs.out_folder(self._id))

    async def interrupt(self) -> None:
        await self._runs.ask(self._id, Reason.INTERRUPTED)

    async def steer(self, text: str) -> str:
        return await self._runs.steer(self._id, text)

    async def kill(self) -> None:
        await self._runs.ask(self._id, Reason.KILLED)


class KnownRuns:
    """Find the runs of the state directory. Who asks twice for one gets the same."""

    def __init__(self, runs: Runs, shelter: Shelter) -> None:
        self._make = partial(KnownRun, runs, shelter=shelter)
        self._runs = runs
        self._known: WeakValueDictionary[str, KnownRun] = WeakValueDictionary()

    def get(self, run: str) -> KnownRun:
        """Return the run whose whole id is *run*.

        Raises:
            UsageError: E-USE-001, there is none.
        """
        if (known := self._known.get(run)) is not None:
            return known
        if self._runs.find(run).id != run:
            raise UsageError("E-USE-001", f"no run is called {run!r}", "Give the whole id.")
        found = self._known[run] = self._make(run)
        return found
