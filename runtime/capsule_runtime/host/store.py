"""The store: all logs of all runs, and the index derived from them, in one SQLite file.

    capsule.db                the log, the index, the requests
    commit.lock               who commits
    supervisors/ID.lock       who lives
    supervisors/ID.audience   which of its runs others follow
    runs/RUN/bell             what followers in other processes watch

Reading blocks for microseconds and works from any thread. Writing is asynchronous, goes through the
one writer thread, and survives the cancellation of whoever waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Self, TypeVar

import anyio
import anyio.to_thread

from capsule_runtime.core.ceilings import DayReached
from capsule_runtime.core.chain import Row
from capsule_runtime.core.day_share import Share
from capsule_runtime.core.index import IndexRow
from capsule_runtime.errors import StoreError
from capsule_runtime.host import transactions
from capsule_runtime.host.audience import Audience
from capsule_runtime.host.connections import Connections, open_readonly, open_writable
from capsule_runtime.host.event_loop import loop_post
from capsule_runtime.host.finishing import finish
from capsule_runtime.host.log_tail import Done, LogTail, Write
from capsule_runtime.host.reader import Reader
from capsule_runtime.host.reservations import Claim, Settlement
from capsule_runtime.host.rows import (
    ContextBusy,
    ContextDiffers,
    ContextRow,
    Fold,
    Problem,
    Request,
)
from capsule_runtime.host.store_check import check_store
from capsule_runtime.host.store_errors import opened_readonly, reporting
from capsule_runtime.host.writer import Begin, Deed, Release, Writer

T = TypeVar("T")


class Store(Reader):
    """One open store. Close it: `with` where no loop runs, `async with` where one does.

    All writing happens on the event loop that wrote first.
    """

    def __init__(self, state: Path, connections: Connections, owner: str | None = None) -> None:
        super().__init__(state, connections.reading)
        self._connections = connections
        self._writer: Writer | None = None
        self._owner = owner
        self._tails: set[LogTail] = set()

    async def create_run(
        self,
        index: IndexRow,
        rows: Sequence[Row],
        context: ContextRow | None,
        claim: Claim | None = None,
    ) -> LogTail | ContextBusy | ContextDiffers | DayReached:
        """Write the first *rows* of a run, numbered from 1, own its log, and reserve for *claim*.

        A busy context, a name of another one and a day with nothing left refuse: nothing is written.

        Raises:
            StoreError: it cannot be written.
        """
        new = transactions.NewRun(index, rows, context, claim)
        bell = self.bell(index.id)
        return await self._do(lambda begin: self._keep(transactions.create_run(begin, bell, new)))

    async def reserve(self, claim: Claim) -> Share:
        """Reserve more of a day for a run, as far as there is more; return what it holds then.

        Raises:
            StoreError: it cannot be written.
        """
        return await self._do(lambda begin: transactions.reserve_more(begin, claim))

    async def claim(self, run: str) -> LogTail:
        """Return the end of the log of *run*, which is at rest or whose owner is dead.

        Two may claim; whoever appends first wins, and the other's append fails with E-STO-008.

        Raises:
            StoreError: the run is not in the index, or the end of its log is damaged.
        """
        bell = self.bell(run)
        return await self._do(lambda begin: self._keep(transactions.claim_run(begin, bell, run)))

    def append(
        self,
        tail: LogTail,
        rows: Sequence[Row],
        index: IndexRow | None,
        done: Done,
        *,
        context: ContextRow | None = None,
        settlement: Settlement | None = None,
    ) -> None:
        """Queue *rows*, with the index and context as they are after them. Return at once.

        *done* is called on the event loop with None once they are on disk, or with the error. After
        an error every later append to *tail* gets the same one.

        Raises:
            ValueError: the rows do not carry the next numbers of the log.
        """
        write, writer = Write(tail, rows, index, context, done, settlement), self._need_writer()
        write.reserve()
        writer.put(write)

    def together(self) -> AbstractContextManager[None]:
        """Commit what is appended in the block as one piece. It must not wait for anything.

        The writer would else wake for the first, and take its turns from whoever makes the others.
        """
        return nullcontext() if self._writer is None else self._writer.together()

    async def commit(
        self,
        tail: LogTail,
        rows: Sequence[Row],
        index: IndexRow | None = None,
        *,
        context: ContextRow | None = None,
    ) -> None:
        """Append *rows* and wait until they are on disk. To cancel the wait cancels no write.

        Raises:
            StoreError: they are lost, and so is *tail*.
            ValueError: the rows do not carry the next numbers of the log.
        """
        told = anyio.Event()
        errors: list[StoreError] = []

        def done(error: StoreError | None) -> None:
            if error is not None:
                errors.append(error)
            told.set()

        self.append(tail, rows, index, done, context=context)
        await told.wait()
        for error in errors:
            # The tail keeps its error for good; each waiter gets one with its own traceback.
            raise StoreError(error.code, error.message, error.hint) from error

    def release(self, tail: LogTail) -> None:
        """Give *tail* back after its last append. A closed store has taken back all."""
        if not self._is_closed:
            self._tails.discard(tail)
            self._need_writer().put(Release(tail))

    async def ask(self, run: str, verb: str, body: bytes, asked_at: str) -> int:
        """Leave a request for the owner of *run*. Return its id.

        Raises:
            StoreError: it cannot be written.
        """
        asked = Request(0, run, verb, body, asked_at)
        return await self._do(lambda begin: transactions.ask(begin, asked))

    async def take_requests(self, owner: str, taken_at: str) -> list[Request]:
        """Take what waits for the runs of *owner*, oldest first. Each request is given once.

        Raises:
            StoreError: it cannot be written.
        """
        if not self.has_requests(owner):
            return []
        return await self._do(lambda begin: transactions.take_requests(begin, owner, taken_at))

    async def rebuild(self, fold: Fold) -> int:
        """Write the index anew from the logs. Return the number of runs.

        Raises:
            StoreError: it cannot be written.
        """
        return await self._do(lambda begin: transactions.rebuild(begin, fold))

    def check(self, fold: Fold | None = None) -> list[Problem]:
        """Return what is wrong with the database. Reads all of it: use a thread.

        Raises:
            StoreError: the database cannot be opened.
        """
        return check_store(self.path, fold)

    def close(self) -> None:
        """Write what is queued, then close. Blocks; a second call does nothing.

        Raises:
            StoreError: the disk did not answer in time.
        """
        if self._is_closed:
            return
        self._is_closed = True
        if self._writer is not None:
            self._writer.stop()
        for tail in self._tails:
            tail.close()
        self._connections.close()

    async def aclose(self) -> None:
        """Close from an event loop, to the end even if cancelled.

        Raises:
            StoreError: the disk did not answer in time.
        """
        # Bounded by the writer's patience: it gives up on locks, and `close` on a dead disk.
        await finish(partial(anyio.to_thread.run_sync, self.close))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _keep(self, made: T) -> T:
        """Close what was *made* with the store, also if whoever waits for it is gone by now."""
        if isinstance(made, LogTail):
            self._tails.add(made)
        return made

    def _need_writer(self) -> Writer:
        if self._is_closed:
            raise ValueError("the store is closed")
        if (writing := self._connections.writing) is None:
            raise opened_readonly(self.path)
        if self._writer is None:
            audience = None if self._owner is None else Audience(self.audience(self._owner))
            self._writer = Writer(self.path, writing, loop_post(), audience)
        return self._writer

    async def _do(self, work: Callable[[Begin], T]) -> T:
        """Have the writer do *work*. Not cancelled in between: what it made must find its owner."""
        result: Future[T] = Future()
        told = anyio.Event()

        def act(begin: Begin) -> None:
            try:
                with reporting(self.path):
                    result.set_result(work(begin))
            except BaseException as error:
                result.set_exception(error)

        self._need_writer().put(Deed(act, told.set))
        with anyio.CancelScope(shield=True):
            await told.wait()
        return result.result()


def open_store(state: Path, *, readonly: bool = False, owner: str | None = None) -> Store:
    """Open the store in the directory *state*, created if need be. Blocks for some milliseconds.

    With *owner*, bells ring only for runs of which that owner is told that they are followed.

    Raises:
        StoreError: it cannot be had; the code says why.
    """
    state = state.absolute()
    return Store(state, open_readonly(state) if readonly else open_writable(state), owner)
