"""Lines of JSON that need care: broken ones, halves of characters, values that nest too deep."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar, cast

import msgspec

from capsule_runtime import Note

T = TypeVar("T")

DEPTH = 128
"""How many brackets may stand in one another: whoever reads the log must be able to decode it."""
NOTE_BYTES = 4096
_PROBLEM_CHARACTERS = 200
_HALF = re.compile(rb"\\u[dD][89a-fA-F]")
_ESCAPE = re.compile(rb"\\(?:u[dD][89abAB]..\\u[dD][c-fC-F]..|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)")
"""An escape in JSON text; its group is there if it stands for half a character."""


def unread(line: bytes, exc: Exception) -> Note:
    """Return what the log keeps of a *line* that could not be read."""
    shown = line[:NOTE_BYTES].decode("utf-8", "replace")
    return Note(f"a line that is no event ({str(exc)[:_PROBLEM_CHARACTERS]}): {shown}")


def decoded(line: bytes, decode: Callable[[bytes], T]) -> T:
    """Return what *decode* makes of *line*; half a character becomes U+FFFD.

    Raises:
        msgspec.DecodeError, RecursionError, UnicodeDecodeError: it cannot be read.
    """
    try:
        return decode(line)
    except msgspec.DecodeError:
        # Strict JSON has no halves of characters, so what they stand in is read without them.
        if not _HALF.search(line):
            raise
        return decode(_ESCAPE.sub(lambda found: rb"\ufffd" if found[1] else found[0], line))


def is_deep(value: object) -> bool:
    """Tell whether *value* nests deeper than `DEPTH` levels, too deep to be passed on."""
    level = [value]
    for _ in range(DEPTH + 1):  # the heart of the value lies behind its last bracket
        inner: list[object] = []
        for one in level:
            if isinstance(one, dict):
                inner.extend(cast("dict[str, object]", one).values())
            elif isinstance(one, list):
                inner.extend(cast("list[object]", one))
        if not inner:
            return False
        level = inner
    return True


def passed_on(value: object) -> object:
    """Return *value* as the log can hold it."""
    return "(it nests too deep to be shown)" if is_deep(value) else value
