"""A clock for tests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from capsule_runtime.core.journal import Moment

_START = datetime(2026, 1, 1, tzinfo=UTC)


class FakeClock:
    """A clock that stands still until a test moves it; give it to `open_supervisor`.

    With it two runs of the same harness differ in their ids alone: every instant and duration that
    the runtime writes comes from its clock. A limit is judged by this clock too, but looked at when
    that much real time has gone by: time that stands still ends no run.
    """

    def __init__(self, start: datetime = _START) -> None:
        self._start = start.astimezone(UTC)
        self._passed = timedelta()

    def moment(self) -> Moment:
        """Read the clock."""
        at = (self._start + self._passed).isoformat(timespec="microseconds")
        return Moment(at.replace("+00:00", "Z"), self._passed.total_seconds())

    def advance(self, seconds: float) -> None:
        """Move the clock on by *seconds*.

        Raises:
            ValueError: *seconds* is negative: no clock of a run goes back.
        """
        if seconds < 0:
            raise ValueError(f"a clock cannot go back by {-seconds:g} s")
        self._passed += timedelta(seconds=seconds)
