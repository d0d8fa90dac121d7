"""What a run asks of its host, and what it learns from it, as values."""

from __future__ import annotations

from dataclasses import dataclass, field

from capsule_runtime.core.day_share import Needs
from capsule_runtime.core.journal import Append, Position
from capsule_runtime.core.outcome import Reason
from capsule_runtime.messages import Decision


@dataclass(frozen=True, slots=True)
class WriteResult:
    """Put *text* into the run's out/result.txt."""

    text: str


@dataclass(frozen=True, slots=True)
class Reply:
    """Tell the harness the *decision* on its request *id*."""

    id: str
    decision: Decision


@dataclass(frozen=True, slots=True)
class HandOver:
    """Write *data*, the words for the working harness, to its stdin."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Interrupt:
    """Ask the harness to stop; call `Run.grace_over` if it has not within the grace."""


@dataclass(frozen=True, slots=True)
class WindDown:
    """Close the harness's stdin; call `Run.grace_over` if it has not left within the grace."""


@dataclass(frozen=True, slots=True)
class Bury:
    """Kill the whole tree now."""


@dataclass(frozen=True, slots=True)
class TopUp:
    """Ask for a larger share of the day, and call `Run.share` with what there is."""

    needs: Needs


Action = Append | WriteResult | Reply | HandOver | Interrupt | WindDown | Bury | TopUp
"""Everything a run may ask of its host."""


@dataclass(frozen=True, slots=True)
class Burial:
    """What was found when the tree was buried; *left* is None when nothing could be proved."""

    killed: int
    left: int | None
    milliseconds: int


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run's log says it had come, for whoever writes on."""

    position: Position = field(default_factory=Position)
    turns: int = 0
    tool_calls: int = 0
    session: str | None = None
    removal_owed: bool = False
    reason: Reason | None = None
    message: str = ""
    result: str = ""
    kill_started: bool = False
