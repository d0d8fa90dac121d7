"""What a run may use, and when which limit is due. No clock: the caller says what time it is."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from capsule_runtime.core.conversation import Phase
from capsule_runtime.core.outcome import Reason
from capsule_runtime.core.units import show_duration

NEVER = float("inf")


class Limits(Struct, frozen=True):
    """What an attempt may use, in seconds and bytes."""

    wall: float
    grace: float
    output: int
    line: int
    idle: Mapping[Phase, float]

    @classmethod
    def of(cls, named: Mapping[str, float]) -> Limits:
        """Take the limits out of the form in which they are recorded."""
        return cls(
            wall=named["wall_seconds"],
            grace=named["grace_seconds"],
            output=int(named["output_bytes"]),
            line=int(named["line_bytes"]),
            idle={phase: named[f"idle_{phase.value}_seconds"] for phase in Phase},
        )


class GraceOver(Struct, frozen=True):
    """The harness was given its grace to leave."""


class LimitPassed(Struct, frozen=True):
    """A limit was passed; the run is asked to stop for *reason*."""

    reason: Reason
    message: str


Due = GraceOver | LimitPassed
"""Everything that time alone can bring about."""

_PHASE_IN_WORDS = {
    Phase.FIRST_TOKEN: "waiting for the model's first token",
    Phase.STREAMING: "streaming an answer",
    Phase.TOOL: "running a tool",
    Phase.RATE_LIMITED: "waiting out a rate limit",
}


class Deadlines:
    """The clocks of one attempt. All instants are monotonic seconds."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._started = self._heard = NEVER
        self._grace_ends = NEVER
        self._stopping = False

    def started(self, now: float) -> None:
        """Start the wall clock and the idle clock."""
        self._started = self._heard = now

    def heard(self, now: float) -> None:
        """Restart the idle clock: the harness said something."""
        self._heard = now

    def give_grace(self, now: float, seconds: float) -> None:
        """Start the grace; one that is already running is only ever shortened."""
        self._stopping = True
        self._grace_ends = min(self._grace_ends, now + seconds)

    def next(self, phase: Phase) -> float:
        """Return the instant before which nothing can be due."""
        if self._stopping:
            return self._grace_ends
        return min(self._started + self._limits.wall, self._heard + self._limits.idle[phase])

    def due(self, phase: Phase, now: float) -> Due | None:
        """Return what is due at *now*; each thing once."""
        if now < self.next(phase):
            return None
        if self._stopping:
            self._grace_ends = NEVER
            return GraceOver()
        self._stopping = True
        if now >= self._started + self._limits.wall:
            wall = show_duration(self._limits.wall)
            return LimitPassed(Reason.WALL, f"the run took longer than its wall limit of {wall}")
        idle = show_duration(self._limits.idle[phase])
        doing = _PHASE_IN_WORDS[phase]
        return LimitPassed(Reason.IDLE, f"the harness was silent for {idle} while {doing}")
