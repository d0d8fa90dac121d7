"""The one place that reads clocks and makes ids."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from typing import Protocol

from capsule_runtime.core.journal import Moment


class Clock(Protocol):
    """Where instants come from; tests bring their own."""

    def moment(self) -> Moment:
        """Read the wall clock and the monotonic clock together."""
        ...


class SystemClock:
    """The machine's clocks."""

    def __init__(self) -> None:
        self._second = -1
        self._shown = ""

    def moment(self) -> Moment:
        second, nanoseconds = divmod(time.time_ns(), 1_000_000_000)
        if second != self._second:  # busy runs ask thousands of times in one
            self._second = second
            self._shown = f"{datetime.fromtimestamp(second, UTC):%Y-%m-%dT%H:%M:%S}"
        return Moment(f"{self._shown}.{nanoseconds // 1000:06}Z", time.monotonic())


def new_id(prefix: str) -> str:
    """Return *prefix* and a UUIDv7 in hex: unique, and sorted by time of making."""
    milliseconds = time.time_ns() // 1_000_000
    random = int.from_bytes(os.urandom(10), "big")
    low = (0b10 << 62) | (random & ((1 << 62) - 1))
    high = (milliseconds << 16) | (0x7 << 12) | (random >> 68)
    return f"{prefix}_{(high << 64) | low:032x}"
