"""The owner's pen on one run's log: encode, commit, show, keep the index."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import anyio
import msgspec

from capsule_runtime.core.chain import Row
from capsule_runtime.core.facts import Fact, Noted, Said, SpendClosed
from capsule_runtime.core.index import IndexRow, index_row
from capsule_runtime.core.journal import Append
from capsule_runtime.core.log import Record
from capsule_runtime.core.money import bounded
from capsule_runtime.core.network_facts import Egress, EgressMore
from capsule_runtime.errors import StoreError
from capsule_runtime.events import Session, TurnEnd, TurnFailed
from capsule_runtime.frames import StatusFrame
from capsule_runtime.host.feed import Feed
from capsule_runtime.host.log_tail import LogTail
from capsule_runtime.host.reservations import Settlement
from capsule_runtime.host.rows import ContextRow
from capsule_runtime.host.store import Store

WAITING_BYTES = 512 * 1024
"""How much of one run may wait for the disk before its output is read on."""
_PAGE_ROWS = 64
# What is no JSON value came from a driver in Python, and is shown as Python shows it.
_encode_lines = msgspec.json.Encoder(enc_hook=repr).encode_lines


def rows_of(appends: Sequence[Append]) -> list[Row]:
    """Return *appends* as the store writes them: the bytes are those a JSONL client gets."""
    return [Row(append.first, append.last, _lines(append.entries)) for append in appends]


def _lines(entries: Sequence[object]) -> bytes:
    try:
        return _encode_lines(entries)
    except UnicodeEncodeError:
        # Half a character: `json.loads` lets it in, UTF-8 has no bytes for it.
        return b"".join(_line_with_marks(entry) for entry in entries)


def _line_with_marks(entry: object) -> bytes:
    """Encode *entry* with a question mark for each half of a character."""
    plain = msgspec.to_builtins(entry, enc_hook=repr)
    text = json.dumps(plain, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "replace") + b"\n"


class RunLog:
    """Write one run's entries. Only one task writes at a time; any number follow `feed`.

    A write is queued at once and shown once it is on disk. The writer waits with `room` so that a
    flood does not pile up here, and with `settled` before it acts on what it wrote.
    """

    def __init__(
        self,
        store: Store,
        tail: LogTail,
        record: Record,
        context: ContextRow | None = None,
        *,
        observe: Callable[[Fact], None] | None = None,
    ) -> None:
        """*observe* is told of each fact once it is on disk."""
        self.run = tail.id
        self.record = record
        """What the facts written so far say, and the final status."""
        self.feed = Feed(lambda after: store.read(tail.id, after, _PAGE_ROWS), record.position.seq)
        self._store = store
        self._tail = tail
        self._index = index_row(record)
        self._context = context
        self._observe = observe
        self._waiting_bytes = 0
        self._committed: anyio.Event | None = None
        self._failure: StoreError | None = None
        self._when_lost: Callable[[], None] | None = None

    def put(self, appends: Sequence[Append]) -> None:
        """Queue *appends* to be committed together, then shown."""
        if not appends:
            return
        rows = rows_of(appends)
        size = sum(len(row.body) for row in rows)
        self._waiting_bytes += size
        # What lives until the commit is kept small: it is what the collector has to look through.
        done = partial(self._done, rows, size, appends if self._observe else ())
        index, context = self._changes(appends)
        settlement = _settlement(appends)
        self._store.append(self._tail, rows, index, done, context=context, settlement=settlement)

    def _done(
        self, rows: Sequence[Row], size: int, observed: Sequence[Append], error: StoreError | None
    ) -> None:
        self._waiting_bytes -= size
        if error is None:
            self.published(rows, observed)
        else:
            self._failure = self._failure or error
            if self._when_lost is not None:
                self._when_lost()
        if self._committed is not None:
            self._committed.set()
            self._committed = None

    def published(self, rows: Sequence[Row], appends: Sequence[Append]) -> None:
        """Show *rows*, which hold *appends* and are on disk by now."""
        self.feed.publish(rows)
        if self._observe is not None:
            for append in appends:
                for fact in append.facts:
                    self._observe(fact)

    @property
    def is_full(self) -> bool:
        """Whether whoever writes should wait for `room`, or hear that the log is lost."""
        return self._waiting_bytes > WAITING_BYTES or self._failure is not None

    async def room(self) -> None:
        """Wait until little enough waits for the disk.

        Raises:
            StoreError: something was not written, and nothing more will be.
        """
        await self._at_most(WAITING_BYTES)

    async def settled(self) -> None:
        """Wait until all that was put is on disk.

        Raises:
            StoreError: something was not written, and nothing more will be.
        """
        await self._at_most(0)

    def close(self) -> None:
        """Say that nothing more will be written, and let the followers go."""
        self.feed.end()
        self._store.release(self._tail)

    def when_lost(self, act: Callable[[], None]) -> None:
        """Have *act* called once something cannot be written; now, if it is so already."""
        self._when_lost = act
        if self._failure is not None:
            act()

    def check(self) -> None:
        """Say whether all could be written so far.

        Raises:
            StoreError: something was not written, and nothing more will be.
        """
        if self._failure is not None:
            failure = self._failure
            raise StoreError(failure.code, failure.message, failure.hint) from failure

    async def _at_most(self, waiting_bytes: int) -> None:
        while self._waiting_bytes > waiting_bytes and self._failure is None:
            self._committed = self._committed or anyio.Event()
            await self._committed.wait()
        self.check()

    def _changes(self, appends: Sequence[Append]) -> tuple[IndexRow | None, ContextRow | None]:
        """Return the run's line of the index and its context, each if these entries change it."""
        is_new = False
        for append in appends:
            for fact in append.facts:
                self.record.apply_entry(fact)
                is_new = is_new or _matters(fact)
            if _is_final(append.entries[-1]):
                self.record.apply_entry(append.entries[-1])
        if not is_new:
            return None, None
        return self._changed_index(), self._changed_context()

    def _changed_index(self) -> IndexRow | None:
        index = index_row(self.record)
        if index == self._index:
            return None
        self._index = index
        return index

    def _changed_context(self) -> ContextRow | None:
        """Return the context if what it keeps for the next run is another than before."""
        if self._context is None:
            return None
        session = self.record.session.id if self.record.session else self._context.session
        memory = self.record.memory or self._context.memory
        if (session, memory) == (self._context.session, self._context.memory):
            return None
        self._context = replace(self._context, session=session, memory=memory)
        return self._context


def _settlement(appends: Sequence[Append]) -> Settlement | None:
    """Return what the run used, if its account is closed here."""
    for append in appends:
        for fact in append.facts:
            if isinstance(fact, SpendClosed):
                counted = fact.settled.counted
                return Settlement(fact.run, bounded(counted.microusd), bounded(counted.tokens))
    return None


def _is_final(entry: object) -> bool:
    return isinstance(entry, StatusFrame) and entry.final


def _matters(entry: object) -> bool:
    """Say whether *entry* can change the index or the context: of many thousands, very few do."""
    if isinstance(entry, Said):
        return isinstance(entry.event, (Session, TurnEnd, TurnFailed))
    return not isinstance(entry, (Noted, Egress, EgressMore))
