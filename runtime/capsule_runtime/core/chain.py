"""The rows of one run's log and the hash chain over them.

A row is a block of consecutive entries, and it is never rewritten. Its hash covers the
hash of the row before it, the run's id, its numbers and its bytes. So an altered, removed, moved or
inserted row shows. Rows cut off the end do not: the index, folded again from the log, shows those.
"""

from __future__ import annotations

import struct
from hashlib import sha256

from msgspec import Struct

_TAG = b"capsule-log-1\n"
_NUMBERS = struct.Struct(">QQQ")
FACT_START = b'{"fact":'
"""How a line begins that is a fact: the encoder writes the tag first."""
_NEXT_FACT = b"\n" + FACT_START


class Row(Struct, frozen=True, gc=False):
    """Entries *first* to *last* of one run; *body* is one JSON object a line, as clients get it."""

    first: int
    last: int
    body: bytes

    def beyond(self, after: int) -> Row:
        """Return this row without the entries up to number *after*."""
        if after < self.first:
            return self
        passed = after - self.first + 1
        return Row(after + 1, self.last, self.body.split(b"\n", passed)[passed])

    def frames(self) -> bytes:
        """Return the lines that clients see, byte for byte."""
        body = self.body
        while body.startswith(FACT_START):
            body = body[body.index(b"\n") + 1 :]
        # A newline inside a line is escaped: each of these ends the line before a fact.
        first, *rest = body.split(_NEXT_FACT)
        kept = [first]
        for piece in rest:
            _, end, frames = piece.partition(b"\n")
            if end:
                kept.append(frames)
        return b"\n".join(kept)


class Link(Struct, frozen=True, gc=False):
    """Where a chain stands: the number of its last entry and the hash of its last row."""

    last: int
    hash: bytes


START = Link(0, bytes(32))


def forge(previous: bytes, run: str, row: Row) -> bytes:
    """Return the hash of *row*, which follows the row whose hash is *previous*."""
    name = run.encode()
    numbers = _NUMBERS.pack(row.first, row.last, len(row.body))
    # Every part has a fixed length or its length before it: no two rows give the same bytes.
    parts = (_TAG, previous, len(name).to_bytes(2, "big"), name, numbers, row.body)
    return sha256(b"".join(parts)).digest()


def find_flaw(before: Link, run: str, row: Row, stored: bytes) -> str | None:
    """Return what is wrong with *row* after *before*, or None if its *stored* hash is right."""
    if row.first != before.last + 1:
        return f"entry {before.last + 1} is missing"
    if forge(before.hash, run, row) != stored:
        return "its hash does not fit its bytes and the row before it"
    return None


def find_miscount(row: Row) -> str | None:
    """Return what is wrong with the number of lines in *row*, or None."""
    lines = row.body.count(b"\n")
    expected = row.last - row.first + 1
    if lines != expected:
        return f"it holds {lines} lines and says {expected}"
    return None if row.body.endswith(b"\n") else "its last line has no end"
