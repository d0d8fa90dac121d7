"""What the harness says, event by event, as entries of the log.

Turns are counted, segments opened and closed, tool calls matched with their results, notes kept
within their budget. How a run stops and ends is no matter of this module.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

import msgspec
from msgspec import Struct

from capsule_runtime.core import facts
from capsule_runtime.core.actions import Progress
from capsule_runtime.core.calls import is_possible
from capsule_runtime.core.journal import Journal
from capsule_runtime.core.ledger import Ledger
from capsule_runtime.core.notes import NoteBudget
from capsule_runtime.core.segments import Segments
from capsule_runtime.core.turns import Turns
from capsule_runtime.core.usage import UsageFold
from capsule_runtime.events import (
    Activity,
    Event,
    Note,
    Retrying,
    Session,
    Steered,
    Text,
    TextDelta,
    Thinking,
    ThinkingDelta,
    ToolCall,
    ToolResult,
    Usage,
)
from capsule_runtime.frames import ArtifactFrame


class Phase(Enum):
    """What a silent run is waiting for; each phase has its own idle limit."""

    FIRST_TOKEN = "first_token"
    STREAMING = "streaming"
    TOOL = "tool"
    RATE_LIMITED = "rate_limited"


class _OpenCall(Struct, frozen=True):
    name: str
    started: float


Hear = dict[type[Event], Callable[[Any], None]]
"""What to do with each kind of event. A table, because a `match` costs most for the last case."""

_json = msgspec.json.Encoder()


class Conversation:
    """The harness's side of one attempt, written into *journal*."""

    def __init__(
        self, journal: Journal, context: str, before: Progress, ledger: Ledger | None = None
    ) -> None:
        """*ledger* is where usage, turns and tool calls are entered, as they come."""
        self.turns = Turns(before.turns)
        self.tool_calls = before.tool_calls
        self.session = before.session
        self.now = 0.0
        self.rate_limited = False
        self.ledger = ledger or Ledger()
        self.ledger.counted(before.turns, before.tool_calls)
        self._journal = journal
        self._segments = Segments(journal, context, before.removal_owed)
        self._notes = NoteBudget()
        self._open_calls: dict[str, _OpenCall] = {}
        self._not_taken: set[str] = set()
        self._claimed = None if self.ledger.account is None else UsageFold()
        """What the harness says that it used, where the gateway knows."""

    def hear(self) -> Hear:
        """Return what to do with each kind of event that is its own."""
        return {
            TextDelta: self._text_delta,
            ThinkingDelta: self._thinking_delta,
            Text: self._text,
            Thinking: self._thinking,
            ToolCall: self._tool_call,
            ToolResult: self._tool_result,
            Note: self._note_event,
            Session: self._session,
            Usage: self._usage,
            Activity: self.record,
            Steered: self._steered,
            Retrying: self._retrying,
        }

    @property
    def phase(self) -> Phase:
        """Return what a silent harness is waiting for."""
        if self.rate_limited:
            return Phase.RATE_LIMITED
        if self._open_calls:
            return Phase.TOOL
        return Phase.STREAMING if self._segments.is_open else Phase.FIRST_TOKEN

    def record(self, event: Event) -> None:
        """Write *event* as a fact."""
        self._journal.fact(lambda seq, at, run: facts.Said(seq, at, run, event))

    def note(self, text: str) -> None:
        """Write a note, within the budget."""
        if (short := self._notes.admit(text)) is not None:
            self._journal.fact(lambda seq, at, run: facts.Noted(seq, at, run, short))

    def note_late(self, event: Event) -> None:
        """Note an event that came after the terminal one."""
        self.note(f"after the terminal event: {_json.encode(event).decode()}")

    def steer(self, id: str) -> None:
        """Expect the harness to say when it has taken the words *id*."""
        self._not_taken.add(id)

    def end_turn(self) -> None:
        """Pay what is owed and close: the turn is over."""
        self._segments.close()
        self.turns.close()

    def fallback(self, result: str) -> None:
        """Send *result* as the whole answer if the last segment streamed none of it."""
        self._segments.fallback(result)

    def note_leftovers(self) -> None:
        """Note what came to nothing: calls without a result, words not taken, notes dropped."""
        for id, call in self._open_calls.items():
            self.note(f"no result for the tool call {id!r} of {call.name!r}")
        for id in sorted(self._not_taken):
            self.note(f"the harness did not say that it took {id}")
        self._note_claim()
        if dropped := self._notes.dropped:
            self._journal.fact(
                lambda seq, at, run: facts.Noted(seq, at, run, f"{dropped} more notes were dropped")
            )

    def _note_claim(self) -> None:
        """Note it where the harness says that it used more than passed the gateway."""
        account = self.ledger.account
        if account is None or self._claimed is None:
            return
        claimed, seen = self._claimed.tokens or 0, account.taken.tokens
        if claimed > seen:
            self.note(f"the harness tells of {claimed} tokens, and {seen} passed the gateway")

    def _text_delta(self, event: TextDelta) -> None:
        if not self._segments.is_open:
            self._segments.open(self.turns.current)
        self._segments.text_delta(event.text)

    def _thinking_delta(self, event: ThinkingDelta) -> None:
        if not self._segments.is_open:
            self._segments.open(self.turns.current)
        self._segments.thinking_delta(event.text)

    def _text(self, event: Text) -> None:
        self.turns.saw_whole(event.answer)
        self.record(event)
        self._count()
        self._segments.open(self.turns.current)
        self._segments.whole_text()

    def _thinking(self, event: Thinking) -> None:
        if event.answer is not None:
            self.turns.saw_answer(event.answer)
            self.record(event)  # it may have counted a turn: the log must be able to count again
            self._count()
        self._segments.open(self.turns.current)
        self._segments.whole_thinking(event.text)

    def _tool_call(self, event: ToolCall) -> None:
        self.turns.saw_whole(event.answer)
        self.tool_calls += 1
        self.record(event)
        self._count()
        self._segments.open(self.turns.current)
        self._open_calls[event.id] = _OpenCall(event.name, self.now)

    def _tool_result(self, event: ToolResult) -> None:
        call = self._open_calls.pop(event.id, None)
        if call is None:
            self.note(f"a result without its call: {_json.encode(event).decode()}")
            return
        self.turns.close()
        self._segments.close()
        duration_ms = round((self.now - call.started) * 1000)
        self._journal.artifact(
            lambda seq, prev, at, run: ArtifactFrame(
                seq,
                prev,
                at,
                run,
                call.name,
                event.id,
                event.content,
                event.is_error is True,
                duration_ms,
                event.exit_code,
                False,  # the log keeps every result whole; a sink that cuts one says so
            )
        )

    def _usage(self, event: Usage) -> None:
        if not is_possible(event):  # a driver in Python may say anything
            self.note(f"a report of usage that cannot be: {event}")
            return
        self.record(event)
        if self._claimed is None:
            self.ledger.used(event)
        else:
            self._claimed.apply(event)

    def _count(self) -> None:
        self.ledger.counted(self.turns.counted, self.tool_calls)

    def _session(self, event: Session) -> None:
        self.session = event.id
        self.record(event)

    def _steered(self, event: Steered) -> None:
        if event.id not in self._not_taken:
            self.note(f"words were taken that nobody gave, or once more: {event.id!r}")
            return
        self._not_taken.remove(event.id)
        self.record(event)

    def _retrying(self, event: Retrying) -> None:
        self.rate_limited = True
        self.record(event)

    def _note_event(self, event: Note) -> None:
        self.note(event.text)
