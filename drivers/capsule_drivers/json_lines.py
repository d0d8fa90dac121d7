"""Lines of JSON that are no lines of ours: read as a block, and one by one where one is broken."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypeVar, cast

import msgspec

from capsule_drivers.json_text import DEPTH, decoded, unread
from capsule_runtime import Note, Usage

T = TypeVar("T")
"""A line as it was decoded."""
_USAGE_MARKS = (b'"stopReason"', b'"usage"', b'"tokens"', b'"stats"')


def read_block(decoder: msgspec.json.Decoder[T], block: bytes) -> list[T | Note | Usage]:
    """Return the lines of *block*; one that cannot be read is a note, and may have told usage."""
    if (whole := _read_whole(decoder, block)) is not None:
        return whole
    found: list[T | Note | Usage] = []
    for line in block.split(b"\n"):
        if line.strip():
            found.extend(item for item in _read_line(decoder, line))
    return found


def _read_whole(decoder: msgspec.json.Decoder[T], block: bytes) -> list[T | Note | Usage] | None:
    """Return the lines of *block* if each is a message; None when a line needs care."""
    try:
        lines = decoder.decode_lines(block)
    except (msgspec.DecodeError, RecursionError):
        return None
    # Between two lines that hold one object each stands "}\n{", and inside an object it cannot.
    if not len(lines) == block.count(b"\n") == block.count(b"}\n{") + 1:
        return None
    if block.count(b"[") + block.count(b"{") > DEPTH and any(map(_is_deep, block.split(b"\n"))):
        return None
    return cast("list[T | Note | Usage]", lines)


def _read_line(decoder: msgspec.json.Decoder[T], line: bytes) -> Sequence[T | Note | Usage]:
    try:
        if _is_deep(line):
            raise ValueError(f"it nests deeper than {DEPTH} levels")
        return [decoded(line, decoder.decode)]
    except (ValueError, RecursionError, msgspec.DecodeError) as exc:
        note = unread(line, exc)
        hides_usage = any(mark in line for mark in _USAGE_MARKS)
        return [note, Usage("unknown:unknown")] if hides_usage else [note]


def _is_deep(line: bytes) -> bool:
    """Whether *line* may hold a value that nests too deep to be passed on."""
    if line.count(b"[") + line.count(b"{") <= DEPTH:
        return False
    depth = deepest = 0
    for bracket in re.findall(rb'"(?:[^"\\]|\\.)*+"|([\[{\]}])', line):
        if bracket:
            depth += 1 if bracket in b"[{" else -1
            deepest = max(deepest, depth)
    return deepest > DEPTH
