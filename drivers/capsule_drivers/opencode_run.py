"""What `opencode run --format json` writes: one line for each finished part of an answer."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from capsule_drivers.acp_errors import kind_of
from capsule_drivers.acp_usage import known
from capsule_drivers.exits import failure_of
from capsule_drivers.json_lines import read_block
from capsule_runtime import (
    Event,
    Exit,
    FailureKind,
    Said,
    Session,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    TurnEnd,
    TurnFailed,
    Usage,
)

_STOPPED = {
    "length": (FailureKind.TRUNCATED, "the answer was cut off at the limit of tokens"),
    "content-filter": (FailureKind.DECLINED, "the model declined"),
}


class Cache(Struct, frozen=True):
    """Tokens of the cache."""

    read: int | None = None
    write: int | None = None


class Tokens(Struct, frozen=True):
    """What one call used; the cache stands beside the input, reasoning beside the output."""

    input: int | None = None
    output: int | None = None
    reasoning: int | None = None
    cache: Cache = Cache()


class Metadata(Struct, frozen=True):
    """What a tool says of itself."""

    exit: int | None = None


class State(Struct, frozen=True):
    """How a tool call ended."""

    status: str = ""
    input: object = None
    output: object = None
    error: str | None = None
    metadata: Metadata | None = None


class Part(Struct, frozen=True, rename={"message_id": "messageID", "call_id": "callID"}):
    """A part of an answer, whatever its kind."""

    id: str = ""
    message_id: str | None = None
    call_id: str | None = None
    text: str = ""
    tool: str = ""
    state: State = State()
    reason: str = ""
    tokens: Tokens | None = None
    cost: float | None = None


class Details(Struct, frozen=True, rename="camel"):
    """What is told of an error."""

    message: str = ""
    status_code: int | None = None


class Problem(Struct, frozen=True):
    """An error."""

    name: str = ""
    data: Details = Details()


class Line(Struct, frozen=True, rename={"session_id": "sessionID"}):
    """One line of `run`."""

    type: str = ""
    session_id: str = ""
    part: Part | None = None
    error: Problem | None = None


_decoder = msgspec.json.Decoder(Line)


class RunLines:
    """Read the lines of one run. It has no last line: the end is the exit."""

    def __init__(self, model: str = "unknown:unknown") -> None:
        self._model = model
        self._session = ""
        self._is_open = self._is_over = False
        self._parts: set[str] = set()
        self._result = ""
        self._reason = ""

    def receive(self, lines: bytes) -> list[Said]:
        """Return what complete *lines* stand for."""
        said: list[Said] = []
        for line in read_block(_decoder, lines):
            if self._is_over:
                break
            if isinstance(line, Line):
                said += self._heard(line)
                continue
            said.append(line)
            # A line that may have told what the step used is a report of it.
            self._is_open = self._is_open and not isinstance(line, Usage)
        return said

    def ended(self, exit: Exit, kind: FailureKind | None) -> list[Event]:
        """Return how the run ended: well if the last answer was whole and the exit is 0."""
        if self._reason == "stop" and exit.code == 0:
            return [TurnEnd(self._result)]
        if exit.code is not None and self._reason in _STOPPED:
            return [TurnFailed(*_STOPPED[self._reason])]
        # Whoever is killed has perhaps asked the model before the first word of an answer.
        is_asking = exit.code is None and self._reason != "stop"
        unknown = [Usage(self._model)] if self._is_open or is_asking else []
        return [*unknown, failure_of(exit, kind)]

    def _heard(self, line: Line) -> list[Event]:
        events: list[Event] = []
        if line.session_id and line.session_id != self._session:
            self._session = line.session_id
            events = [Session(self._session)]
        if line.error is not None:
            return [*events, *self._failed(line.error)]
        part = line.part
        if part is None or part.id in self._parts:
            return events
        if part.id:
            self._parts.add(part.id)
        return [*events, *self._part(line.type, part)]

    def _part(self, kind: str, part: Part) -> Sequence[Event]:
        was_open, self._is_open = self._is_open, kind != "step_finish"
        match kind:
            case "step_start":
                self._reason = ""
                # The step before broke off, or the line that told what it used is lost.
                return [Usage(self._model)] if was_open else ()
            case "reasoning":
                return [Thinking(part.text, part.message_id)]
            case "text":
                self._result = part.text
                return [Text(part.text, part.message_id)]
            case "tool_use":
                self._result = ""
                return _tool(part)
            case "step_finish":
                self._reason = part.reason
                return [self._usage(part)]
            case _:
                pass
        return ()

    def _usage(self, part: Part) -> Usage:
        used = part.tokens or Tokens()
        written, thought = known(used.output), known(used.reasoning)
        return Usage(
            self._model,
            input_tokens=known(used.input),
            output_tokens=None if written is None else written + (thought or 0),
            cache_read_tokens=known(used.cache.read),
            cache_write_tokens=known(used.cache.write),
            # A harness that is told of no reasoning writes 0.
            reasoning_tokens=thought or None,
            cost_usd=part.cost,
            call_id=part.id,
        )

    def _failed(self, problem: Problem) -> list[Event]:
        words = problem.data.message or problem.name or "opencode failed"
        kind = kind_of(problem.data.status_code or 0, f"{problem.name} {words}")
        unknown = [Usage(self._model)] if self._is_open else []
        self._is_over = True
        return [*unknown, TurnFailed(kind, words)]


def _tool(part: Part) -> Sequence[Event]:
    id, state = part.call_id or part.id, part.state
    content = state.error if state.output is None else state.output
    failed = True if state.status == "error" else None
    code = state.metadata.exit if state.metadata else None
    return [
        ToolCall(id, part.tool, state.input, part.message_id),
        ToolResult(id, part.tool, content, failed, code),
    ]
