"""What a run asks of its host, and what it learns from it, as values."""

from __future__ import annotations

from msgspec import Struct, field

from capsule_runtime.core.day_share import Needs
from capsule_runtime.core.journal import Append, Position
from capsule_runtime.core.outcome import Reason
from capsule_runtime.messages import Decision


class WriteResult(Struct, frozen=True):
    """Put *text* into the run's out/result.txt."""

    text: str


class Reply(Struct, frozen=True):
    """Tell the harness the *decision* on its request *id*."""

    id: str
    decision: Decision


class HandOver(Struct, frozen=True):
    """Write *data*, the words for the working harness, to its stdin."""

    data: bytes


class Interrupt(Struct, frozen=True):
    """Ask the harness to stop; call `Run.grace_over` if it has not within the grace."""


class WindDown(Struct, frozen=True):
    """Close the harness's stdin; call `Run.grace_over` if it has not left within the grace."""


class Bury(Struct, frozen=True):
    """Kill the whole tree now."""


class TopUp(Struct, frozen=True):
    """Ask for a larger share of the day, and call `Run.share` with what there is."""

    needs: Needs


Action = Append | WriteResult | Reply | HandOver | Interrupt | WindDown | Bury | TopUp
"""Everything a run may ask of its host."""


class Burial(Struct, frozen=True):
    """What was found when the tree was buried; *left* is None when nothing could be proved."""

    killed: int
    left: int | None
    milliseconds: int


class Progress(Struct, frozen=True):
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
