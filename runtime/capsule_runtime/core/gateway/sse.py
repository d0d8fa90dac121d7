"""Server-sent events out of bytes that come in any pieces, each with the bytes it was made of.

An event ends with an empty line; a line ends with LF, CR LF or CR. The bytes of all events one after
another are those that came, so that a stream can be passed on without an event and otherwise
untouched. An event longer than *max_bytes* is told as such, in as many pieces as it takes: its
bytes are there, and what it says is not. Time is linear in what comes; memory is bounded by
*max_bytes* and one chunk.
"""

from __future__ import annotations

import re

from msgspec import Struct

MOST_BYTES = 16 * 1024 * 1024
"""Of an event. The last one of some APIs has the whole response in it."""
_END = re.compile(rb"(?:\r\n|\n|\r(?!\n))(?:\r\n|\n|\r(?!\n))")
_LINE = re.compile(rb"\r\n|\n|\r")
_LONGEST_END = 4
_MARK = b"\xef\xbb\xbf"


class Event(Struct, frozen=True, gc=False):
    """The bytes of an event, and the data in it; None if it has none, or was too long.

    *is_whole* is false for what is a piece of an event that was too long, or was cut.
    """

    raw: bytes
    data: bytes | None = None
    is_whole: bool = True


class EventReader:
    """Cut a stream into events."""

    def __init__(self, max_bytes: int = MOST_BYTES) -> None:
        self._max_bytes = max_bytes
        self._carry = bytearray()
        self._searched = 0
        self._is_too_long = False
        self._is_first = True

    def feed(self, chunk: bytes) -> list[Event]:
        """Add *chunk* and return the events that it completes."""
        carry = self._carry
        carry += chunk
        events: list[Event] = []
        begin, search = 0, self._searched
        while (found := _END.search(carry, search)) is not None:
            if found.end() == len(carry) and carry.endswith(b"\r"):
                break  # an LF may follow, which belongs to it
            begin, search = self._completed(events, begin, found.end()), found.end()
        if begin:
            del carry[:begin]
        self._searched = max(0, len(carry) - _LONGEST_END + 1)
        if len(carry) > self._max_bytes:
            self._let_go(events)
        return events

    def close(self) -> list[Event]:
        """Return what is left when no more comes: an event that nothing ended is not whole."""
        rest = bytes(self._carry)
        self._carry.clear()
        if not rest:
            return []
        # Only now is it known that no LF follows.
        is_ended = rest.endswith((b"\r\r", b"\n\r"))
        is_whole = is_ended and not self._is_too_long
        return [Event(rest, self._data(rest) if is_whole else None, is_whole)]

    def _completed(self, events: list[Event], begin: int, end: int) -> int:
        raw = bytes(self._carry[begin:end])
        is_too_long, self._is_too_long = self._is_too_long or len(raw) > self._max_bytes, False
        events.append(Event(raw, None if is_too_long else self._data(raw), not is_too_long))
        return end

    def _let_go(self, events: list[Event]) -> None:
        """Pass on what came of an event that is too long, but for what may be part of its end."""
        keep = len(self._carry) - self._searched
        events.append(Event(bytes(self._carry[: self._searched]), None, is_whole=False))
        del self._carry[: self._searched]
        self._searched = 0
        self._is_too_long = True
        assert len(self._carry) == keep

    def _data(self, raw: bytes) -> bytes | None:
        """Return the data of the event that *raw* is, with LF between its lines."""
        if self._is_first:
            self._is_first = False
            raw = raw.removeprefix(_MARK)
        if raw.startswith(b"data: ") and raw.endswith(b"\n\n") and raw.find(b"\n") == len(raw) - 2:
            if b"\r" not in raw:
                return raw[6:-2]  # nearly every event of most streams
        values = [value for line in _LINE.split(raw) if (value := _value(line)) is not None]
        return b"\n".join(values) if values else None


def _value(line: bytes) -> bytes | None:
    """Return what *line* adds to the data of its event, if it does."""
    name, _, value = line.partition(b":")
    return value.removeprefix(b" ") if name == b"data" else None
