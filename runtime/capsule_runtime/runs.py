"""The runs of a state directory, seen from outside their owner: list, read, follow, ask."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import msgspec

from capsule_runtime.core.chain import Row
from capsule_runtime.core.facts import Created
from capsule_runtime.core.index import IndexRow, index_row
from capsule_runtime.core.log import Record
from capsule_runtime.core.outcome import Reason
from capsule_runtime.errors import HostError, StoreError, UsageError
from capsule_runtime.host.audience import attend
from capsule_runtime.host.bell import Bell, follow_bell
from capsule_runtime.host.clock import SystemClock, new_id
from capsule_runtime.host.control import ring_owner
from capsule_runtime.host.feed import whole_log
from capsule_runtime.host.locks import is_free
from capsule_runtime.host.process import bury_through_warden
from capsule_runtime.host.rows import ContextRow, Folded, Problem
from capsule_runtime.host.state import default_state, doorbell, warden_door
from capsule_runtime.host.store import Store, open_store
from capsule_runtime.logs import Logs
from capsule_runtime.pricing import PriceBook
from capsule_runtime.recovery import Heir, recover
from capsule_runtime.settings import price_book
from capsule_runtime.steering import STEER, encode, find_answer, has_ended, refusal, words_for

LAST = "@last"
LOCKED = "E-STO-007"
TAKEN_SECONDS = 2.0
"""How long an owner may take to hear a request; then a kill goes to its warden."""
ENDED_SECONDS = 15.0
"""How long a kill may take to the recorded end."""
_SHOWN_CANDIDATES = 5
_LOOK_SECONDS = 1.0


class Runs:
    """Look at the runs of one state directory, and ask their owners for things."""

    def __init__(self, store: Store, prices: PriceBook, logs: Logs | None = None) -> None:
        self._store = store
        self._prices = prices
        self._logs = logs or Logs()
        self._clock = SystemClock()

    @property
    def state(self) -> Path:
        """Return the state directory."""
        return self._store.state

    def find(self, name: str) -> IndexRow:
        """Return the run that *name* means: an id, a unique beginning of one, or @last.

        Raises:
            UsageError: E-USE-001, there is none; E-USE-002, there are several.
        """
        start = name.removeprefix("run_")
        if name == LAST:
            newest = self._store.newest_run()
            found = [newest] if newest else []
        else:
            # Nothing is no beginning of an id: `capsule kill "$UNSET"` must not find a run.
            found = self._store.find(f"run_{start}") if start else []
        if not found:
            raise UsageError(
                "E-USE-001", f"no run is called {name!r}", "`capsule ps --all` lists them."
            )
        if len(found) > 1:
            shown = ", ".join(row.id for row in found[:_SHOWN_CANDIDATES])
            more = ", …" if len(found) > _SHOWN_CANDIDATES else ""
            raise UsageError(
                "E-USE-002", f"{name!r} means several runs: {shown}{more}", "Write more of the id."
            )
        return found[0]

    def recent(self, *, live_only: bool = False, limit: int = 50) -> list[IndexRow]:
        """Return the newest runs, newest first."""
        return self._store.runs(limit, live_only)

    def rows(self, run: str, after: int = 0) -> Iterator[Row]:
        """Yield the rows of *run* beyond entry *after*, as far as they are written now."""
        return whole_log(partial(self._store.read, run), after)

    def page(self, run: str, after: int) -> Sequence[Row]:
        """Return the next rows of *run* that reach beyond entry *after*."""
        return self._store.read(run, after)

    def bell(self, run: str) -> AbstractAsyncContextManager[Bell]:
        """Return the watch on what others write of *run*."""
        return follow_bell(self._store.bell(run), self._store.data_version)

    def record(self, run: str) -> Record:
        """Return what the log of *run* says now."""
        return Record.fold(row.body for row in self.rows(run))

    def out_folder(self, run: str) -> Path:
        """Return the folder of what *run* left."""
        return self.state / "runs" / run / "out"

    async def follow(self, run: str, after: int = 0) -> AsyncGenerator[Row]:
        """Yield the rows of *run* beyond entry *after* as they are committed, until its end.

        A run whose owner died is ended first, so that this ends too.
        """
        async with self.bell(run) as bell:
            while True:
                self.attend(run, bell)
                rows = self._store.read(run, after)
                for row in rows:
                    yield row.beyond(after)
                    after = row.last
                if rows:
                    continue
                if self.has_ended(run):
                    if self._store.read(run, after):
                        continue
                    return
                with anyio.move_on_after(_LOOK_SECONDS) as looking:
                    await bell.rung()
                if looking.cancelled_caught:
                    await self.recover()

    async def wait(self, run: str) -> Record:
        """Wait for the end of *run* and return what its whole log says."""
        record = Record()
        async for row in self.follow(run):
            record.apply(row.body)
        return record

    async def ask(self, run: str, reason: Reason) -> None:
        """Ask the owner of *run* to stop it; return once it heard, and once a kill is done.

        A run that has ended is left as it is.

        Raises:
            HostError: E-HOST-010, the owner does not answer.
        """
        owner = self.find(run).owner
        if self.has_ended(run) or owner is None:
            return
        try:
            request = await self._store.ask(run, reason.value, b"", self._clock.moment().at)
        except StoreError as exc:
            # A stopped owner may hold the lock for writing; its warden does not need it.
            if exc.code != LOCKED or reason is not Reason.KILLED:
                raise
            await self._go_round(run, owner, reason)
            return
        is_there = ring_owner(doorbell(self.state, owner)) or not self._is_dead(owner)
        if not is_there or not await self._within(TAKEN_SECONDS, run, request):
            await self._go_round(run, owner, reason)
        elif reason is Reason.KILLED:
            await self._ended_soon(run)

    async def steer(self, run: str, text: str) -> str:
        """Have the owner of *run* hand *text* to its harness; return the id of these words.

        Raises:
            UsageError: E-USE-004, the run does not work; E-USE-005, its harness takes no words.
            HostError: E-HOST-010, the owner does not answer.
        """
        words, owner = words_for(run, new_id(STEER), text), self.find(run).owner
        if self.has_ended(run) or owner is None:
            raise refusal(has_ended(run))
        after = self._store.last_entry(run)
        asked_at = self._clock.moment().at
        request = await self._store.ask(run, STEER, encode(words), asked_at)
        is_there = ring_owner(doorbell(self.state, owner)) or not self._is_dead(owner)
        if not is_there or not await self._within(TAKEN_SECONDS, run, request):
            await self._go_round(run, owner, Reason.INTERRUPTED)
        async for row in self.follow(run, after):
            if (answer := find_answer(row.body, words.id)) is not None:
                if answer.refused is not None:
                    raise refusal(answer.refused)
                return words.id
        raise refusal(has_ended(run))

    async def recover(self) -> list[str]:
        """End the runs that dead owners left, and return their ids."""
        heir = Heir(self._store, self._clock, new_id("sup"), self._prices, self._logs)
        return await recover(heir)

    async def check(self) -> list[Problem]:
        """Return what is wrong with the store; reads all of it."""
        return await anyio.to_thread.run_sync(partial(self._store.check, _fold))

    async def rebuild(self) -> int:
        """Write the index anew from the logs, and return the number of runs."""
        return await self._store.rebuild(_fold)

    def attend(self, run: str, bell: Bell) -> None:
        """Have whoever owns *run* now ring *bell*. Tell first, then read."""
        owner = self.find(run).owner
        if owner is not None and owner != bell.ringer:
            bell.is_rung = attend(self._store.audience(owner), run)
            bell.ringer = owner if bell.is_rung else None

    def has_ended(self, run: str) -> bool:
        """Say whether the end of *run* is on record."""
        return self.find(run).state == "ended"

    def _is_dead(self, owner: str) -> bool:
        return is_free(self._store.owner_lock(owner))

    async def _within(self, seconds: float, run: str, request: int) -> bool:
        """Wait until *request* was taken, or its run has ended; say whether it was in time."""
        with anyio.move_on_after(seconds):
            async with self.bell(run) as bell:
                self.attend(run, bell)
                while not (self._store.request_taken(request) or self.has_ended(run)):
                    with anyio.move_on_after(_LOOK_SECONDS):
                        await bell.rung()
                return True
        return False

    async def _go_round(self, run: str, owner: str, reason: Reason) -> None:
        """Reach a run whose owner does not answer: it is dead, or stuck."""
        if self._is_dead(owner):
            await self.recover()
            return
        if reason is Reason.KILLED and await bury_through_warden(
            str(warden_door(self.state, owner)), run
        ):
            return
        raise HostError(
            "E-HOST-010",
            f"the supervisor of {run} does not answer",
            "`capsule kill` goes round it; else end the process that started the run.",
        )

    async def _ended_soon(self, run: str) -> None:
        with anyio.move_on_after(ENDED_SECONDS):
            await self.wait(run)
            return
        raise HostError("E-HOST-010", f"{run} did not reach its end within {ENDED_SECONDS:g} s")


@asynccontextmanager
async def open_runs(
    state: Path | None = None, *, prices: PriceBook | None = None
) -> AsyncGenerator[Runs]:
    """Open the state directory for looking at its runs.

    Raises:
        StoreError: it cannot be used.
    """
    async with open_store(state or default_state()) as store:
        yield Runs(store, prices or price_book(state))


def _fold(rows: Iterable[Row]) -> Folded:
    """Return what the index should say of the run whose whole log is *rows*."""
    try:
        record = Record.fold(row.body for row in rows)
    except msgspec.DecodeError as exc:
        raise StoreError("E-STO-004", f"a log holds an entry that is none: {exc}") from exc
    index, created = index_row(record), record.created
    if index is None or created is None:
        raise StoreError("E-STO-004", "a log does not begin with its run's creation")
    return Folded(index, _context(record, created))


def _context(record: Record, created: Created) -> ContextRow:
    return ContextRow(
        name=created.context,
        uuid=created.context_uuid,
        driver=created.manifest.harness.driver,
        created_at=created.at,
        session=record.session.id if record.session else None,
        memory=record.memory,
    ).at(created.setting)
