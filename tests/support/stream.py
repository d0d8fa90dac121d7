"""The rules of the stream, written down a second time: what the frames of a run must be.

This is the oracle of the property tests. It is plain and slow, knows nothing of logs, rows or
actions, and shares no code with the runtime but the words of the final status.
"""

from __future__ import annotations

from capsule_runtime import (
    Event,
    Outcome,
    Reason,
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
from capsule_runtime.core.ceilings import Ceilings
from capsule_runtime.core.finals import final_status
from capsule_runtime.core.outcome import OUTCOME_OF
from support.script import Short


class Stream:
    """What a client must be shown. Tell it what happens; read `frames`."""

    def __init__(self, ceilings: Ceilings) -> None:
        """*ceilings* have none in dollars, and allow what is not metered."""
        self.frames: list[Short] = []
        self.reason: Reason | None = None
        self.message = ""
        self.turns = 0
        self._segment_is_open = False
        self._streamed_text = False
        self._streamed_thinking = False
        self._removal_owed = False
        self._turn_is_open = False
        self._answer: str | None = None
        self._calls: set[str] = set()
        self._terminal = False
        self._stop_asked = False
        self._killed = False
        self._result = ""
        self._ceilings = ceilings
        self._model_calls = self._tokens = self._tool_calls = 0

    def hear(self, event: Event) -> None:
        """Take what the harness says."""
        if self._terminal:
            return
        if isinstance(event, (Text, Thinking, ToolCall)):
            self._count(event)
        if isinstance(event, (Text, Thinking)):
            self._spend("")
        if isinstance(event, (TextDelta, Text, ThinkingDelta, Thinking, ToolCall)):
            self._open()
        match event:
            case TextDelta(text):
                self._streamed_text = self._removal_owed = True
                self.frames.append(("text", text, False))
            case Text():
                self._pay()
            case ThinkingDelta(text):
                self._streamed_thinking = True
                self.frames.append(("thinking", text))
            case Thinking(text):
                if not self._streamed_thinking:
                    self.frames.append(("thinking", text))
            case ToolCall(id):
                self._calls.add(id)
                self._tool_calls += 1
                self._spend("")
            case Usage():
                self._model_calls += 1
                self._tokens += event.input_tokens or 0
                self._spend(f", with model call {self._model_calls}")
            case ToolResult(id) if id in self._calls:
                self._calls.remove(id)
                self._close()
                self.frames.append(("artifact", id))
            case TurnEnd(result):
                self._end_turn(Reason.COMPLETED, "")
                self._result = result
                if not (self._stop_asked or self._streamed_text or result == ""):
                    self.frames.append(("text", result, True))
            case TurnFailed(kind, message):
                self._end_turn(Reason(kind.value), message)
            case _:
                pass

    def stop(self, reason: Reason, message: str) -> None:
        """Take a request to stop."""
        if not (self._stop_asked or self._terminal):
            self._stop_asked = True
            self._settle(reason, message)
            self._killed = self._killed or reason in (
                Reason.KILLED,
                Reason.OUTPUT,
                Reason.DRIVER_FAILED,
            )
        elif reason is Reason.KILLED:
            self._killed = True
            if self.reason and OUTCOME_OF[self.reason] is Outcome.CANCELED:
                self.reason, self.message = reason, message
        elif self._terminal and OUTCOME_OF[reason] is Outcome.CANCELED:
            self._killed = True

    def grace_over(self) -> None:
        """Take the end of the grace."""
        self._killed = True

    def end(self, reason: Reason, message: str) -> None:
        """Take the end of the run, which is for *reason* if nothing else is on record."""
        self._settle(reason, message)
        self._pay()
        assert self.reason is not None
        state, words = final_status(self.reason, self.message, killed=self._killed)
        response = self._result if self.reason is Reason.COMPLETED else None
        self.frames.append((state, words, response))

    def _spend(self, by: str) -> None:
        """Refuse what is too much, unless the run ends for another reason."""
        passed: list[tuple[Reason, str]] = []
        ceiling = self._ceilings.tokens
        if ceiling is not None and self._tokens >= ceiling:
            passed.append((Reason.TOKENS, _reached("tokens", ceiling, self._tokens, by)))
        ceiling = self._ceilings.turns
        if ceiling is not None and self.turns > ceiling:
            passed.append((Reason.TURNS, _reached("turns", ceiling, self.turns, by)))
        ceiling = self._ceilings.tool_calls
        if ceiling is not None and self._tool_calls > ceiling:
            words = _reached("tool_calls", ceiling, self._tool_calls, by)
            passed.append((Reason.TOOL_CALLS, words))
        if passed and self.reason is None:
            self._settle(*passed[0])
            self._stop_asked = True

    def _count(self, event: Text | Thinking | ToolCall) -> None:
        if event.answer is not None:
            if event.answer != self._answer:
                self.turns += 1
            self._answer, self._turn_is_open = event.answer, True
        elif not isinstance(event, Thinking):
            self.turns += 0 if self._turn_is_open else 1
            self._turn_is_open = True

    def _open(self) -> None:
        if not self._segment_is_open:
            self._segment_is_open = True
            self._streamed_text = self._streamed_thinking = self._removal_owed = False
            turn = self.turns if self._turn_is_open else self.turns + 1
            self.frames.append(("working", f"inference turn {turn}"))

    def _pay(self) -> None:
        if self._removal_owed:
            self._removal_owed = False
            self.frames.append(("text", "", True))

    def _close(self) -> None:
        self._pay()
        self._segment_is_open = self._turn_is_open = False

    def _end_turn(self, reason: Reason, message: str) -> None:
        self._close()
        self._terminal = True
        self._settle(reason, message)

    def _settle(self, reason: Reason, message: str) -> None:
        if self.reason is None:
            self.reason, self.message = reason, message


def _reached(ceiling: str, limit: int, observed: int, by: str) -> str:
    return f"the {ceiling} ceiling of {limit} is reached: {observed} observed{by}"
