"""Follow a run's log by a cursor, in the process that writes it.

The recent end of the log is kept in memory once somebody follows; whoever is further behind reads
the store. So a slow follower costs nothing and misses nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Protocol, Self

from capsule_runtime.core.chain import Row
from capsule_runtime.host.waiting import Waiting, waiting

_TAIL_BYTES = 64 * 1024
_ROW_OVERHEAD_BYTES = 200

ReadLog = Callable[[int], Sequence[Row]]
"""Read rows of the log that reach beyond an entry number, oldest first, a page at a time."""


def whole_log(read: ReadLog, after: int = 0) -> Iterator[Row]:
    """Yield all rows beyond entry *after*, as far as they are written now."""
    while rows := read(after):
        for row in rows:
            yield row.beyond(after)
            after = row.last


class Feed:
    """What has been committed of one run. `publish` is called after each commit, in order."""

    def __init__(self, read_log: ReadLog, head: int = 0) -> None:
        self.head = head
        self._read_log = read_log
        self._tail: list[Row] = []
        self._tail_bytes = 0
        self._waiting: Waiting | None = None
        self._ended = False

    def publish(self, rows: Sequence[Row]) -> None:
        """Show committed *rows* to all followers."""
        if self._waiting is None:  # nobody has followed yet, so nothing is kept for anybody
            self.head = rows[-1].last if rows else self.head
            return
        for row in rows:
            self._tail.append(row)
            self._tail_bytes += len(row.body) + _ROW_OVERHEAD_BYTES
            self.head = row.last
        kept = len(rows)  # a follower that was up to date finds all of the newest commit here
        while self._tail_bytes > _TAIL_BYTES and len(self._tail) > kept:
            self._tail_bytes -= len(self._tail.pop(0).body) + _ROW_OVERHEAD_BYTES
        self._waiting.wake()

    def end(self) -> None:
        """Say that nothing more will be published."""
        self._ended = True
        if self._waiting is not None:
            self._waiting.wake()

    def follow(self, after: int) -> AsyncIterator[Row]:
        """Yield every row beyond entry *after*, until the end."""
        return Follower(self, after)

    async def grown(self, after: int) -> bool:
        """Wait until there is something beyond entry *after*; False when there never will be."""
        while after >= self.head:
            if self._ended:
                return False
            self._waiting = self._waiting or waiting()
            await self._waiting.wait()
        return True

    def rows(self, after: int) -> Sequence[Row]:
        """Return the next rows that reach beyond entry *after*."""
        if not self._tail or self._tail[0].first > after + 1:
            return self._read_log(after)
        newest_first: list[Row] = []
        for row in reversed(self._tail):
            if row.last <= after:
                break
            newest_first.append(row)
        return newest_first[::-1]


class Growing(Protocol):
    """A log that grows: `Feed` where it is written, something else in other processes."""

    async def grown(self, after: int) -> bool:
        """Wait until there is something beyond entry *after*; False when there never will be."""
        ...

    def rows(self, after: int) -> Sequence[Row]:
        """Return the next rows that reach beyond entry *after*."""
        ...


class Follower:
    """A cursor on a log. It holds nothing: whoever stops asking owes nothing."""

    def __init__(self, feed: Growing, after: int) -> None:
        self._feed = feed
        self._after = after
        self._found: deque[Row] = deque()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Row:
        if not self._found:
            if not await self._feed.grown(self._after):
                raise StopAsyncIteration
            self._found.extend(self._feed.rows(self._after))
        row = self._found.popleft().beyond(self._after)
        self._after = row.last
        return row
