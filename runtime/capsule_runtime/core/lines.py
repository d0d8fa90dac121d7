"""Bytes in, complete lines out. LF only: a harness's text may hold any other separator."""

from __future__ import annotations

from msgspec import Struct

HEAD_BYTES = 4096
"""Of a line that is too long, what a driver gets to tell by what it was."""


class Lines(Struct, frozen=True, gc=False):
    """Complete lines as one run of bytes, and the lengths of lines that were too long.

    While no chunk is longer than the longest line allowed, *skipped* came before the rest of *block*.
    """

    block: bytes
    skipped: tuple[int, ...] = ()


class LineBuffer:
    """Cut a byte stream into runs of complete lines of at most *max_bytes* each.

    An over-long line is dropped up to its newline, but for its first *head_bytes*, which are a line
    in its place; the next line is intact. Memory is bounded by *max_bytes* and one chunk.
    """

    def __init__(self, max_bytes: int, head_bytes: int = 0) -> None:
        self._max_bytes = max_bytes
        self._head_bytes = min(head_bytes, max_bytes)
        self._carry = bytearray()  # not a list: a slow drip would make one of millions of bytes
        self._carried = 0

    def feed(self, chunk: bytes) -> Lines:
        """Add *chunk* and return the lines it completes."""
        end = chunk.rfind(b"\n") + 1
        if end == len(chunk) <= self._max_bytes and not self._carried and chunk:
            return Lines(chunk)  # nearly every chunk of a stream that is read as it is written
        if not end:
            self._hold(chunk)
            return Lines(b"")
        block, skipped = self._complete(chunk[:end])
        self._hold(chunk[end:])
        return Lines(block, skipped)

    def close(self) -> Lines:
        """Return the last line, which no newline ended."""
        return self.feed(b"\n") if self._carried else Lines(b"")

    def _hold(self, rest: bytes) -> None:
        self._carried += len(rest)
        if self._carried <= self._max_bytes:
            self._carry += rest
            return
        # Only the length of a line this long is still of use, and how it begins.
        head = self._carry[: self._head_bytes]
        self._carry = head + rest[: self._head_bytes - len(head)]

    def _complete(self, block: bytes) -> tuple[bytes, tuple[int, ...]]:
        """Join the carried start of a line with *block*, which ends one."""
        carried, carry = self._carried, self._carry
        self._carried, self._carry = 0, bytearray()
        first = block.index(b"\n")
        if carried + first > self._max_bytes:
            rest, skipped = self._short_lines(block[first + 1 :])
            begin = bytes(carry[: self._head_bytes]) + block[: min(first, self._head_bytes)]
            return self._head_of(begin) + rest, (carried + first, *skipped)
        return self._short_lines(b"".join((carry, block)) if carry else block)

    def _short_lines(self, block: bytes) -> tuple[bytes, tuple[int, ...]]:
        if len(block) <= self._max_bytes + 1:
            return block, ()
        lines = block.split(b"\n")[:-1]
        skipped = tuple(len(line) for line in lines if len(line) > self._max_bytes)
        return (b"".join(map(self._shown, lines)) if skipped else block), skipped

    def _shown(self, line: bytes) -> bytes:
        return line + b"\n" if len(line) <= self._max_bytes else self._head_of(line)

    def _head_of(self, line: bytes) -> bytes:
        return line[: self._head_bytes] + b"\n" if self._head_bytes else b""
