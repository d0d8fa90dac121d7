"""Read a run's log back: the fold from entries to what is known of the run.

The fold is total: any prefix of a log gives a record, and the same entries give the same record.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

import msgspec

from capsule_runtime.core import facts, work_facts
from capsule_runtime.core.actions import Progress
from capsule_runtime.core.call_facts import CallEnded, CallFact, CallRefused, CallStarted
from capsule_runtime.core.call_fold import CallFold
from capsule_runtime.core.chain import FACT_START
from capsule_runtime.core.containment import Containment
from capsule_runtime.core.egress_facts import EgressFold
from capsule_runtime.core.journal import Position
from capsule_runtime.core.ledger import Settled
from capsule_runtime.core.network_facts import Egress, EgressMore
from capsule_runtime.core.outcome import OUTCOME_OF, Outcome, Reason
from capsule_runtime.core.steers import Steer
from capsule_runtime.core.told_dollars import ToldDollars
from capsule_runtime.core.turns import Turns
from capsule_runtime.core.usage import UsageFold
from capsule_runtime.core.work import CopyMade, WorkChanges
from capsule_runtime.events import (
    Event,
    Session,
    Steered,
    Text,
    Thinking,
    ToolCall,
    TurnEnd,
    TurnFailed,
    Usage,
)
from capsule_runtime.frames import ArtifactFrame, Frame, StatusFrame, TextFrame, ThinkingFrame
from capsule_runtime.messages import Message

_facts = msgspec.json.Decoder(facts.Fact)
_frames = msgspec.json.Decoder(Frame)


def decode_entries(body: bytes) -> list[Frame | facts.Fact]:
    """Return the entries of one row."""
    return [
        _facts.decode(line) if line.startswith(FACT_START) else _frames.decode(line)
        for line in body.splitlines()
    ]


class Record:
    """What a run's log says so far. `apply` takes its rows in order."""

    def __init__(self) -> None:
        self.created: facts.Created | None = None
        self.attempt: facts.AttemptStarted | None = None
        self.copy: CopyMade | None = None
        self.containment: Containment | None = None
        self.launched: facts.Launched | None = None
        self.stop: facts.StopAsked | None = None
        self.steers: dict[str, Steer] = {}
        self.exited: facts.Exited | None = None
        self.tree: facts.TreeEmpty | None = None
        self.changes: WorkChanges | None = None
        self.ended: facts.Ended | None = None
        self.applied: work_facts.Applied | None = None
        self.terminal: TurnEnd | TurnFailed | None = None
        self.session: Session | None = None
        self.final: StatusFrame | None = None
        self.memory: bytes | None = None
        self.kill_started = False
        self.tool_calls = 0
        self.allowed = 0
        self.denied = 0
        self.egress = EgressFold()
        self.usage = UsageFold()
        self.claimed: UsageFold | None = None
        """What the harness says that it used, where the account comes from the gateway."""
        self._calls: CallFold | None = None
        self.told_dollars = ToldDollars()
        self.settled: Settled | None = None
        self._turns = Turns()
        self.position = Position()
        self._removal_owed = False
        self._settled: tuple[Reason, str] | None = None

    @classmethod
    def fold(cls, bodies: Iterable[bytes]) -> Record:
        """Return the record of a whole log, given as the bodies of its rows."""
        record = cls()
        for body in bodies:
            record.apply(body)
        return record

    @property
    def calls(self) -> CallFold:
        """Return the model calls that passed the gateway."""
        return self._calls or CallFold()

    @property
    def state(self) -> str:
        """Return the run's state in one word."""
        if self.ended is not None:
            return "ended"
        if self.stop is not None or self.terminal is not None or self.kill_started:
            return "stopping"
        return "running" if self.launched is not None else "starting"

    @property
    def reason(self) -> Reason | None:
        """Return the first reason on record."""
        return self._settled[0] if self._settled else None

    @property
    def outcome(self) -> Outcome | None:
        """Return how the run ended, or None while it has not."""
        return self.ended.outcome if self.ended else None

    @property
    def turns(self) -> int:
        """Return how many model answers were counted, over all attempts."""
        return self.ended.turns if self.ended else self._turns.counted

    @property
    def tokens(self) -> int | None:
        """Return how many tokens were used, as a ceiling counts them; None if nobody told."""
        return self.usage.tokens

    @property
    def message(self) -> Message | None:
        """Return the task as it was given."""
        return self.created.message if self.created else None

    @property
    def progress(self) -> Progress:
        """Return what a run needs to know to write on."""
        reason, message = self._settled or (None, "")
        return Progress(
            position=self.position,
            turns=self.turns,
            tool_calls=self.tool_calls,
            session=self.session.id if self.session else None,
            removal_owed=self._removal_owed,
            reason=reason,
            message=message,
            result=self.terminal.result if isinstance(self.terminal, TurnEnd) else "",
            kill_started=self.kill_started,
        )

    def apply(self, body: bytes) -> None:
        """Take the next row of the log."""
        for entry in decode_entries(body):
            self.apply_entry(entry)

    def apply_entry(self, entry: Frame | facts.Fact) -> None:
        """Take the next entry as a value."""
        if isinstance(entry, Frame):
            self._apply_frame(entry)
        else:
            self._apply_fact(entry)

    def _apply_frame(self, frame: Frame) -> None:
        self.position = Position(frame.seq, frame.seq)
        match frame:
            case TextFrame():
                self._removal_owed = not frame.final
            case ArtifactFrame():
                self._turns.close()
            case StatusFrame():
                self.final = frame if frame.final else None
            case ThinkingFrame():
                pass
            case _:
                assert_never(frame)

    def _apply_fact(self, fact: facts.Fact) -> None:
        self.position = Position(fact.seq, self.position.frame)
        match fact:
            case facts.Created():
                self.created = fact
            case facts.AttemptStarted():
                if self.attempt is not None:
                    self.usage.next_attempt()
                    self.told_dollars.next_attempt()
                self.attempt = fact
                self.claimed = UsageFold() if fact.ledger == "gateway" else None
            case work_facts.Copied(copy=copy):
                self.copy = copy
            case work_facts.Collected(changes=changes):
                self.changes = changes
            case work_facts.Applied():
                self.applied = fact
            case facts.Contained():
                self.containment = fact.containment
            case facts.Launched():
                self.launched = fact
            case facts.Said():
                self._apply_event(fact.event, fact.at)
            case facts.Remembered():
                self.memory = fact.data
            case facts.StopAsked():
                self._apply_stop(fact)
            case facts.SteerAsked(id=id, at=at, text=text, refused=refused):
                self.steers[id] = Steer(id, at, text, refused.message if refused else None)
            case facts.KillStarted():
                self.kill_started = True
            case facts.Exited():
                self.exited = fact
            case facts.TreeEmpty():
                self.tree = fact
            case facts.SpendClosed():
                self.settled = fact.settled
            case facts.Ended():
                self.ended = fact
                self._settled = (fact.reason, fact.message)
            case facts.PermissionDecided():
                self.allowed += fact.allowed
                self.denied += not fact.allowed
            case Egress() | EgressMore():
                self.egress.apply(fact)
            case CallStarted() | CallEnded() | CallRefused():
                self._apply_call(fact)
            case facts.Noted() | facts.Recovered():
                pass
            case _:
                assert_never(fact)

    def _apply_stop(self, fact: facts.StopAsked) -> None:
        self.stop = self.stop or fact
        reason = self.reason
        refines = fact.reason is Reason.KILLED and reason and OUTCOME_OF[reason] is Outcome.CANCELED
        if reason is None or refines:
            self._settled = (fact.reason, fact.message)

    def _apply_event(self, event: Event, at: str) -> None:
        if isinstance(event, (Text, ToolCall)):
            self._turns.saw_whole(event.answer)
            self.tool_calls += isinstance(event, ToolCall)
        elif isinstance(event, Thinking) and event.answer is not None:
            self._turns.saw_answer(event.answer)
        elif isinstance(event, Session):
            self.session = event
        elif isinstance(event, Steered):
            if event.id in self.steers:
                self.steers[event.id].taken_at = at
        elif isinstance(event, Usage):
            (self.claimed or self.usage).apply(event)
            self.told_dollars.apply(event)
        elif isinstance(event, (TurnEnd, TurnFailed)):
            self._apply_terminal(event)

    def _apply_call(self, fact: CallFact) -> None:
        self._calls = self._calls or CallFold()
        self._calls.apply(fact)
        if isinstance(fact, CallEnded) and fact.usage is not None and self.claimed:
            self.usage.apply(fact.usage)

    def _apply_terminal(self, event: TurnEnd | TurnFailed) -> None:
        self.terminal = event
        self._turns.close()
        if self._settled is None:
            match event:
                case TurnEnd():
                    self._settled = (Reason.COMPLETED, "")
                case TurnFailed(kind, message):
                    self._settled = (Reason(kind.value), message)
