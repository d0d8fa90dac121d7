"""Counts of tokens as harnesses write them, of which some are none."""

from __future__ import annotations

_MOST_TOKENS = 2**40


def count_of(told: object) -> int | None:
    """Return the count that *told* is; None for what is none, and for what no call can have used."""
    if not isinstance(told, int) or isinstance(told, bool):
        return None
    return told if 0 <= told <= _MOST_TOKENS else None
