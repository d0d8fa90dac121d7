"""The one thread of a process that writes to the database: whatever is queued, in one commit.

    append -> queue -> drain <= 1 MiB -> commit lock { begin, insert, commit } -> publish -> ring

SQLite checkpoints inside the COMMIT of this thread, so its checkpoints are under the commit lock
too; readers are opened read-only and never checkpoint. A run that fails is taken out of its group
and its neighbours are not hurt. Nothing of it is written any more: there is no entry after a gap.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import assert_never

from msgspec import Struct

from capsule_runtime.errors import StoreError
from capsule_runtime.host.audience import Audience
from capsule_runtime.host.bell import ring
from capsule_runtime.host.connections import WritingConnection
from capsule_runtime.host.event_loop import Post
from capsule_runtime.host.log_tail import LogTail, Write, insert
from capsule_runtime.host.store_errors import (
    concerns_all,
    explain_loss,
    writer_stopped,
)

GROUP_BYTES = 1 << 20
CLOSE_SECONDS = 15.0

Begin = Callable[[], AbstractContextManager[sqlite3.Connection]]
"""Open a write transaction, committed at the end of the block."""


class Deed(Struct, frozen=True):
    """Something else to do with the database, alone: *act* in the writer, *done* on the loop.

    *act* keeps its result or its exception for *done*, and raises nothing.
    """

    act: Callable[[Begin], None]
    done: Callable[[], None]


class Release(Struct, frozen=True):
    """Close the bell of *tail* after all that was queued for it."""

    tail: LogTail


class Stop(Struct, frozen=True):
    """End the thread after all that was queued."""


Job = Write | list[Write] | Deed | Release | Stop


class Writer:
    """Use the writing connection in a thread of its own, until `stop`."""

    def __init__(
        self,
        path: Path,
        connection: WritingConnection,
        post: Post,
        audience: Audience | None = None,
    ) -> None:
        """*audience* knows for whom to ring, and is closed at the end; without it, ring for all."""
        self._path = path
        self._database = connection.database
        self._lock = connection.lock
        self._post = post
        self._audience = audience
        self._queue: SimpleQueue[Job] = SimpleQueue()
        self._held: list[Write] | None = None
        self._in_hand: list[Write] = []
        self._next: Job | None = None
        self._dead: StoreError | None = None
        # A daemon: a disk that never answers must not keep the program from ending.
        self._thread = threading.Thread(target=self._main, name="store", daemon=True)
        self._thread.start()

    def put(self, job: Job) -> None:
        """Queue *job* and return at once."""
        if self._held is None:
            self._queue.put(job)
        elif isinstance(job, Write):
            self._held.append(job)
        else:
            self._let_go(self._held)
            self._queue.put(job)

    @contextmanager
    def together(self) -> Generator[None]:
        """Queue the writes of the block as one piece. The block must not wait for anything."""
        held: list[Write] = []
        self._held = held
        try:
            yield
        finally:
            self._held = None
            self._let_go(held)

    def _let_go(self, held: list[Write]) -> None:
        if held:
            self._queue.put(held.copy())
            held.clear()

    def stop(self) -> None:
        """Write all that is queued, then end the thread. Blocks.

        Raises:
            StoreError: the disk did not answer in time.
        """
        self._queue.put(Stop())
        self._thread.join(CLOSE_SECONDS)
        if self._thread.is_alive():
            raise writer_stopped(self._path, f"still busy after {CLOSE_SECONDS:g} s")
        if self._audience is not None:
            self._audience.close()

    def _main(self) -> None:
        try:
            self._serve()
        except BaseException as bug:
            # Whoever waits, now or later, must hear of it. The bug itself surfaces at the end.
            self._dead = writer_stopped(self._path, repr(bug))
            self._write_group(self._in_hand)
            self._serve()
            raise

    def _serve(self) -> None:
        while True:
            job, self._next = self._next or self._queue.get(), None
            match job:
                case Write():
                    self._gather([job])
                    self._write_group(self._in_hand)
                case list():
                    self._gather(job)
                    self._write_group(self._in_hand)
                case Deed():
                    job.act(self._begin)
                    self._tell(job.done)
                case Release():
                    job.tail.close()
                case Stop():
                    return
                case _:
                    assert_never(job)

    def _gather(self, first: list[Write]) -> None:
        self._in_hand = first
        size = sum(write.size for write in first)
        while size < GROUP_BYTES:
            try:
                job = self._queue.get_nowait()
            except Empty:
                return
            if isinstance(job, Write):
                self._in_hand.append(job)
                size += job.size
            elif isinstance(job, list):
                self._in_hand.extend(job)
                size += sum(write.size for write in job)
            else:
                self._next = job
                return

    def _write_group(self, group: Sequence[Write]) -> None:
        if self._dead is None:
            self._try_group(group)
        else:
            _lose(group, self._dead)
        self._in_hand = []
        self._tell(lambda: _publish(group))
        self._ring({write.tail for write in group if write.error is None})

    def _ring(self, tails: set[LogTail]) -> None:
        followed = None if self._audience is None else self._audience.runs()
        for tail in tails:
            if tail.is_claimed or followed is None or tail.id in followed:
                ring(tail.bell)

    def _try_group(self, group: Sequence[Write]) -> None:
        live = [write for write in group if write.tail.failure is None]
        _fail_with_tail(group)
        for write in live:
            write.seal()
        try:
            self._commit(live)
        except (sqlite3.Error, StoreError) as error:
            if concerns_all(error):
                _lose(live, explain_loss(error, live[0].tail.id, live[0].rows[0].first, self._path))
            else:
                self._try_each(live)

    def _try_each(self, writes: Sequence[Write]) -> None:
        for write in writes:
            _fail_with_tail([write])
            if write.error is not None:
                continue
            try:
                self._commit([write])
            except (sqlite3.Error, StoreError) as error:
                first = write.rows[0].first
                _lose([write], explain_loss(error, write.tail.id, first, self._path))

    def _commit(self, writes: Sequence[Write]) -> None:
        if writes:
            with self._begin() as database:
                insert(database, writes)

    @contextmanager
    def _begin(self) -> Generator[sqlite3.Connection]:
        if self._dead is not None:
            raise self._dead
        database = self._database
        with self._lock.held():
            database.execute("begin immediate")
            try:
                yield database
                database.execute("commit")
            except BaseException:
                # SQLite has already rolled back after some errors, a full disk among them.
                if database.in_transaction:
                    database.execute("rollback")
                raise

    def _tell(self, call: Callable[[], object]) -> None:
        # The loop may have ended, and then nobody waits for the news.
        with suppress(RuntimeError):
            self._post(call)


def _publish(group: Sequence[Write]) -> None:
    for write in group:
        write.done(write.error)


def _lose(writes: Sequence[Write], error: StoreError) -> None:
    for write in writes:
        write.tail.failure = write.tail.failure or error
    _fail_with_tail(writes)


def _fail_with_tail(writes: Sequence[Write]) -> None:
    for write in writes:
        write.error = write.tail.failure
