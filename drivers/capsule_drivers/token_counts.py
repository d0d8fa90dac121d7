"""Counts of tokens as harnesses write them, of which some are none."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

_MOST_TOKENS = 2**40
Count = Annotated[int, Meta(ge=0, le=_MOST_TOKENS)]
"""A count that may be, where it is read back."""


def count_of(told: object) -> int | None:
    """Return the count that *told* is; None for what is none, and for what no call can have used."""
    if not isinstance(told, int) or isinstance(told, bool):
        return None
    return told if 0 <= told <= _MOST_TOKENS else None
