"""One run, as a state machine. No I/O and no clock.

Rule 1: every change of state happens in `Run._move`, and every legal one is a row of `TRANSITIONS`.
Rule 2: methods return the actions the caller must perform, in order, and perform none. All that
stands before an act in the list must be in the log before the act is performed.
Rule 3: the first reason to end on record is the reason. Only a person's kill refines a person's
interrupt.
Rule 4: `_finish` is the only place that writes a final status, and every path leads there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

import msgspec

from capsule_runtime.core import facts
from capsule_runtime.core.finals import final_status
from capsule_runtime.core.journal import Append, Journal, Moment, Position
from capsule_runtime.core.notes import NoteBudget
from capsule_runtime.core.outcome import OUTCOME_OF, Outcome, Reason
from capsule_runtime.core.segments import Segments
from capsule_runtime.core.turns import Turns
from capsule_runtime.events import (
    Activity,
    Dispatch,
    Event,
    Handoff,
    Note,
    Permission,
    Retrying,
    Session,
    Sleep,
    Suspend,
    Text,
    TextDelta,
    Thinking,
    ThinkingDelta,
    ToolCall,
    ToolResult,
    TurnEnd,
    TurnFailed,
    Usage,
)
from capsule_runtime.frames import ArtifactFrame
from capsule_runtime.messages import Decision, Exit, Refused


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


WITHOUT_GRACE = frozenset({Reason.KILLED, Reason.OUTPUT, Reason.DRIVER_FAILED})
"""Reasons to go straight to the kill: there is nothing to wait for."""


class IllegalMove(RuntimeError):
    """Raised when a cause arrives in a state that has no row for it: a bug of the runtime."""


class Phase(Enum):
    """What a silent run is waiting for; each phase has its own idle limit."""

    FIRST_TOKEN = "first_token"
    STREAMING = "streaming"
    TOOL = "tool"
    RATE_LIMITED = "rate_limited"


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
class Interrupt:
    """Ask the harness to stop; call `Run.grace_over` if it has not within the grace."""


@dataclass(frozen=True, slots=True)
class WindDown:
    """Close the harness's stdin; call `Run.grace_over` if it has not left within the grace."""


@dataclass(frozen=True, slots=True)
class Bury:
    """Kill the whole tree now."""


Action = Append | WriteResult | Reply | Interrupt | WindDown | Bury
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


@dataclass(frozen=True, slots=True)
class _OpenCall:
    name: str
    started: float


_json = msgspec.json.Encoder()


class Run:
    """Decide what one run's events mean. Feed it; perform what it returns."""

    def __init__(self, run: str, context: str, progress: Progress | None = None) -> None:
        before = progress or Progress()
        self.state = State.STARTING
        self.reason = before.reason
        self.message = before.message
        self.turns = Turns(before.turns)
        self.tool_calls = before.tool_calls
        self.session = before.session
        self.has_terminal = False
        self._context = context
        self._journal = Journal(run, before.position)
        self._segments = Segments(self._journal, context, before.removal_owed)
        self._notes = NoteBudget()
        self._open_calls: dict[str, _OpenCall] = {}
        self._actions: list[Action] = []
        self._result = before.result
        self._rate_limited = False
        self._stop_asked = False
        self._kill_started = before.kill_started
        self._now = 0.0
        self._on: dict[type[Event], Callable[[Any], None]] = {
            TextDelta: self._text_delta,
            ThinkingDelta: self._thinking_delta,
            Text: self._text,
            Thinking: self._thinking,
            ToolCall: self._tool_call,
            ToolResult: self._tool_result,
            TurnEnd: self._turn_end,
            TurnFailed: self._turn_failed,
            Note: self._note_event,
            Session: self._session,
            Usage: self._record,
            Activity: self._record,
            Retrying: self._retrying,
            Permission: self._refuse,
            Suspend: self._refuse,
            Sleep: self._refuse,
            Dispatch: self._refuse,
            Handoff: self._refuse,
        }

    @property
    def outcome(self) -> Outcome | None:
        """Return how the run ends, as far as that is on record."""
        return None if self.reason is None else OUTCOME_OF[self.reason]

    @property
    def position(self) -> Position:
        """Return where the log ends."""
        return self._journal.position

    @property
    def phase(self) -> Phase:
        """Return what the run waits for while it is silent."""
        if self._rate_limited:
            return Phase.RATE_LIMITED
        if self._open_calls:
            return Phase.TOOL
        return Phase.STREAMING if self._segments.is_open else Phase.FIRST_TOKEN

    def record(self, make: Callable[[int, str, str], facts.Fact], moment: Moment) -> list[Action]:
        """Write a fact of the host's: `Created`, `AttemptStarted`, `Recovered`."""
        self._begin(moment)
        self._journal.fact(make)
        return self._take()

    def launched(self, pid: int, moment: Moment) -> list[Action]:
        """Apply: the harness's process exists."""
        self._begin(moment)
        self._move(Cause.LAUNCHED)
        self._journal.fact(lambda seq, at, run: facts.Launched(seq, at, run, pid))
        return self._take()

    def receive(self, events: Sequence[Event], moment: Moment) -> list[Action]:
        """Apply what the harness said, in order."""
        self._begin(moment)
        self._move(Cause.SPOKE)
        on = self._on
        for event in events:
            if self.has_terminal:
                self._note(f"after the terminal event: {_json.encode(event).decode()}")
            else:
                self._rate_limited = False
                on[type(event)](event)
        return self._take()

    def note(self, text: str, moment: Moment) -> list[Action]:
        """Write a note of the host's."""
        self._begin(moment)
        self._note(text)
        return self._take()

    def ask_stop(self, reason: Reason, message: str, moment: Moment) -> list[Action]:
        """Apply: somebody, or a limit, asks the run to stop."""
        self._begin(moment)
        was = self.state
        self._move(Cause.STOP_ASKED)
        if was is State.ENDED:
            return []
        if was is State.STOPPING:
            self._ask_again(reason, message)
        else:
            self._settle(reason, message)
            self._record_stop(reason, message)
            if reason in WITHOUT_GRACE:
                self._start_kill()
            else:
                self._act(Interrupt())
        return self._take()

    def grace_over(self, moment: Moment) -> list[Action]:
        """Apply: the harness was given its grace and is still there.

        While nobody asked it to stop, that is a harness that closed its output and lives on.
        """
        self._begin(moment)
        if self.state is State.RUNNING:
            self._move(Cause.STOP_ASKED)
            why = "the harness closed its output and did not leave"
            self._settle(Reason.INDETERMINATE, why)
            self._record_stop(Reason.INDETERMINATE, why)
        if self.state is State.STOPPING and not self._kill_started:
            self._start_kill()
        return self._take()

    def end(
        self, exit: Exit, burial: Burial, last_words: Sequence[Event], moment: Moment
    ) -> list[Action]:
        """Apply: the tree is empty, all output was read. Write the one final status.

        *last_words* is what the driver made of the exit when output had no terminal event.
        """
        self._begin(moment)
        self._move(Cause.EXITED)
        self._journal.fact(lambda s, at, run: facts.Exited(s, at, run, exit.code, exit.signal))
        self._journal.fact(
            lambda s, at, run: facts.TreeEmpty(
                s, at, run, burial.killed, burial.left, burial.milliseconds
            )
        )
        for event in last_words:
            if not self.has_terminal:
                self._on[type(event)](event)
        self._settle(Reason.DRIVER_FAILED, "the driver named no terminal event for the exit")
        self._finish()
        return self._take()

    def fail(self, reason: Reason, message: str, moment: Moment) -> list[Action]:
        """Apply: no process was started, or its owner died. Write the one final status."""
        self._begin(moment)
        self._move(Cause.EXITED)
        self._settle(reason, message)
        self._finish()
        return self._take()

    def _finish(self) -> None:
        self._note_leftovers()
        assert self.reason is not None
        reason, outcome = self.reason, OUTCOME_OF[self.reason]
        turns, calls, message = self.turns.counted, self.tool_calls, self.message
        self._journal.fact(
            lambda s, at, run: facts.Ended(s, at, run, outcome, reason, message, turns, calls)
        )
        self._segments.close()
        state, words = final_status(reason, message, killed=self._kill_started)
        response = self._result if outcome is Outcome.COMPLETED else None
        self._journal.status(state, words, self._context, final=True, response=response)

    def _begin(self, moment: Moment) -> None:
        self._journal.at = moment.at
        self._now = moment.now

    def _take(self) -> list[Action]:
        self._actions.extend(self._journal.take())
        actions, self._actions = self._actions, []
        return actions

    def _act(self, action: Action) -> None:
        """Queue *action* behind all that was written so far."""
        self._actions.extend(self._journal.take())
        self._actions.append(action)

    def _move(self, cause: Cause) -> None:
        try:
            self.state = TRANSITIONS[self.state][cause]
        except KeyError:
            raise IllegalMove(f"{cause.name} while {self.state.name}") from None

    def _settle(self, reason: Reason, message: str) -> None:
        if self.reason is None:
            self.reason, self.message = reason, message

    def _ask_again(self, reason: Reason, message: str) -> None:
        """Go straight to the kill when a person asks again, or will not wait for a goodbye."""
        refines = reason is Reason.KILLED and self.outcome is Outcome.CANCELED
        by_person = OUTCOME_OF[reason] is Outcome.CANCELED
        kills = reason is Reason.KILLED or (by_person and self.has_terminal)
        if refines and self.reason is not reason:
            self.reason, self.message = reason, message
        elif self._kill_started or not kills:
            return
        self._record_stop(reason, message)
        if not self._kill_started:
            self._start_kill()

    def _record_stop(self, reason: Reason, message: str) -> None:
        self._stop_asked = True
        self._journal.fact(lambda seq, at, run: facts.StopAsked(seq, at, run, reason, message))

    def _start_kill(self) -> None:
        self._kill_started = True
        self._journal.fact(facts.KillStarted)
        self._act(Bury())

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
        self._record(event)
        self._segments.open(self.turns.current)
        self._segments.whole_text()

    def _thinking(self, event: Thinking) -> None:
        if event.answer is not None:
            self.turns.saw_answer(event.answer)
            self._record(event)  # it may have counted a turn: the log must be able to count again
        self._segments.open(self.turns.current)
        self._segments.whole_thinking(event.text)

    def _tool_call(self, event: ToolCall) -> None:
        self.turns.saw_whole(event.answer)
        self.tool_calls += 1
        self._record(event)
        self._segments.open(self.turns.current)
        self._open_calls[event.id] = _OpenCall(event.name, self._now)

    def _tool_result(self, event: ToolResult) -> None:
        call = self._open_calls.pop(event.id, None)
        if call is None:
            self._note(f"a result without its call: {_json.encode(event).decode()}")
            return
        self.turns.close()
        self._segments.close()
        duration_ms = round((self._now - call.started) * 1000)
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

    def _turn_end(self, event: TurnEnd) -> None:
        self._act(WriteResult(event.result))
        self._end_turn(event)
        self._result = event.result
        if not self._stop_asked:
            self._segments.fallback(event.result)
        self._settle(Reason.COMPLETED, "")
        self._leave()

    def _turn_failed(self, event: TurnFailed) -> None:
        self._end_turn(event)
        self._settle(Reason(event.kind.value), event.message)
        self._leave()

    def _end_turn(self, event: TurnEnd | TurnFailed) -> None:
        self.has_terminal = True
        self._record(event)
        self._segments.close()
        self.turns.close()

    def _leave(self) -> None:
        """Let the harness go: it has said its last word."""
        if self.state is not State.ENDED:  # the driver's last words come when it is gone
            self._move(Cause.TERMINAL)
            self._act(WindDown())

    def _session(self, event: Session) -> None:
        self.session = event.id
        self._record(event)

    def _retrying(self, event: Retrying) -> None:
        self._rate_limited = True
        self._record(event)

    def _refuse(self, event: Permission | Suspend | Sleep | Dispatch | Handoff) -> None:
        self._record(event)
        if self.state is not State.ENDED:
            self._act(Reply(event.id, _refusal(event)))

    def _record(self, event: Event) -> None:
        self._journal.fact(lambda seq, at, run: facts.Said(seq, at, run, event))

    def _note_event(self, event: Note) -> None:
        self._note(event.text)

    def _note(self, text: str) -> None:
        if (short := self._notes.admit(text)) is not None:
            self._journal.fact(lambda seq, at, run: facts.Noted(seq, at, run, short))

    def _note_leftovers(self) -> None:
        for id, call in self._open_calls.items():
            self._note(f"no result for the tool call {id!r} of {call.name!r}")
        if dropped := self._notes.dropped:
            self._journal.fact(
                lambda seq, at, run: facts.Noted(seq, at, run, f"{dropped} more notes were dropped")
            )


def _refusal(event: Permission | Suspend | Sleep | Dispatch | Handoff) -> Refused:
    if isinstance(event, Permission):
        return Refused("E-RUN-040", "permission is denied: nobody is asked in the advisory tier")
    kind = type(event).__name__.lower()
    return Refused("E-RUN-041", f"this runtime does not offer {kind}")
