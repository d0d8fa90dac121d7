"""The states of a run, and every legal move between them. Each move of a run is a row here."""

from __future__ import annotations

from enum import Enum, auto

from capsule_runtime.core.outcome import Reason


class State(Enum):
    """Where a run stands."""

    STARTING = auto()
    RUNNING = auto()
    STOPPING = auto()
    ENDED = auto()


class Cause(Enum):
    """What moves a run."""

    LAUNCHED = auto()
    SPOKE = auto()
    TERMINAL = auto()
    STOP_ASKED = auto()
    EXITED = auto()


TRANSITIONS: dict[State, dict[Cause, State]] = {
    State.STARTING: {
        Cause.LAUNCHED: State.RUNNING,
        Cause.STOP_ASKED: State.STOPPING,
        Cause.EXITED: State.ENDED,
    },
    State.RUNNING: {
        Cause.SPOKE: State.RUNNING,
        Cause.TERMINAL: State.STOPPING,
        Cause.STOP_ASKED: State.STOPPING,
        Cause.EXITED: State.ENDED,
    },
    # A second reason to stop changes nothing: the first one is on record.
    State.STOPPING: {
        Cause.LAUNCHED: State.STOPPING,
        Cause.SPOKE: State.STOPPING,
        Cause.TERMINAL: State.STOPPING,
        Cause.STOP_ASKED: State.STOPPING,
        Cause.EXITED: State.ENDED,
    },
    # Whoever asks too late is told that the run is over, and changes nothing.
    State.ENDED: {Cause.STOP_ASKED: State.ENDED},
}


WITHOUT_GRACE = frozenset(
    {
        Reason.KILLED,
        Reason.OUTPUT,
        Reason.MEMORY,
        Reason.PROCESSES,
        Reason.DISK,
        Reason.DRIVER_FAILED,
    }
)
"""Reasons to go straight to the kill: there is nothing to wait for."""


class IllegalMove(RuntimeError):
    """Raised when a cause arrives in a state that has no row for it: a bug of the runtime."""
