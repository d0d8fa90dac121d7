"""Qwen Code, in its two-way stream-json. See drivers/README.md.

Words that it is steered with wait until its turn is over and open a turn of their own. So the end
of a turn ends the run only if no words wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import msgspec
from msgspec import Struct

from capsule_drivers.exits import failure_of, last_words
from capsule_drivers.json_text import decoded, passed_on, unread
from capsule_drivers.qwen_launch import DESCRIPTION, QwenCodeConfig, plan, provider_and_model
from capsule_drivers.qwen_lines import (
    Answer as Spoken,
)
from capsule_drivers.qwen_lines import (
    AssistantLine,
    Block,
    ControlRequest,
    ControlResponse,
    Line,
    ModelEvent,
    Result,
    StreamEvent,
    SystemLine,
    Tokens,
    UserLine,
    decode_line,
)
from capsule_drivers.qwen_usage import SessionUsage
from capsule_drivers.reading import json_line, kind_of_error
from capsule_runtime import (
    Decision,
    Description,
    Event,
    Exit,
    FailureKind,
    LaunchPlan,
    LaunchRequest,
    Note,
    Permission,
    Refused,
    Said,
    Send,
    Session,
    Steered,
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

_API_ERROR = "[API Error"
"""How it begins what it says in the model's place."""
_CANCELLED = "Operation cancelled."
_TOO_MANY_TURNS = 53
_ANSWER = b'{"type":"assistant"'


class QwenCodeDriver:
    """Drive Qwen Code over stdin and stdout."""

    Config: ClassVar[type[Struct]] = QwenCodeConfig

    def __init__(self) -> None:
        self._provider = "openai"
        self._model = "unknown:unknown"
        self._session = ""
        self._is_session_told = False
        self._usage = SessionUsage()
        self._answer = ""
        """The name of the model answer that is being written."""
        self._has_words = False
        """Whether that answer has anything, of which nobody said yet what it used."""
        self._open: dict[str, str] = {}
        """Tools that were called and gave nothing yet: id to name."""
        self._waiting: list[str] = []
        """The ids of words that it was steered with and has not begun to answer."""
        self._questions: set[str] = set()
        self._is_interrupted = False

    def describe(self) -> Description:
        return DESCRIPTION

    def launch(self, request: LaunchRequest) -> LaunchPlan:
        self._provider, model = provider_and_model(request)
        if request.session:
            self._usage.resume(request.session, request.memory)
        begin = {"subtype": "initialize"}
        hello = {"type": "control_request", "request_id": "capsule-begin", "request": begin}
        stdin = json_line(hello) + _prompt(request.message.text)
        return replace(plan(request, model), stdin=stdin)

    def receive(self, lines: bytes) -> Sequence[Said]:
        said: list[Said] = []
        for line in lines.split(b"\n"):
            if not line or line.isspace():
                continue
            try:
                said += self._read(decoded(line, decode_line))
            except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as exc:
                said.append(unread(line, exc))
                if line.startswith(_ANSWER):  # unknown is not free
                    said.append(Usage(self._model))
        return said

    def interrupt(self) -> Send | None:
        self._is_interrupted = True
        stop = {"subtype": "interrupt"}
        return Send(
            json_line({"type": "control_request", "request_id": "capsule-stop", "request": stop})
        )

    def steer(self, id: str, text: str) -> Send | None:
        self._waiting.append(id)
        return Send(_prompt(text))

    def answer(self, id: str, decision: Decision) -> Send | None:
        if id not in self._questions:
            return None
        self._questions.discard(id)
        reply: dict[str, object] = {"behavior": "allow"}
        if isinstance(decision, Refused):
            reply = {"behavior": "deny", "message": decision.message}
        response = {"subtype": "success", "request_id": id, "response": reply}
        return Send(json_line({"type": "control_response", "response": response}))

    def ended(self, exit: Exit) -> Sequence[Event]:
        said, last = exit.stderr_tail.decode("utf-8", "replace"), last_words(exit)
        if "No saved session found" in said:
            failed = TurnFailed(FailureKind.SESSION_GONE, last)
        elif exit.code == _TOO_MANY_TURNS:
            failed = TurnFailed(FailureKind.MAX_TURNS, last or "it took as many turns as it may")
        else:
            failed = failure_of(exit)
        return [*self._unfinished(), *self._cut_off(), failed]

    def _read(self, line: Line) -> Sequence[Said]:
        match line:
            case StreamEvent(event, parent):
                return () if parent else self._streamed(event)
            case AssistantLine(message, parent):
                return self._spoken(message, is_main=not parent)
            case UserLine(message, parent):
                return () if parent else self._results(message.blocks)
            case SystemLine("init", session, model):
                return self._begun(session, model)
            case Result():
                return self._turn_ended(line)
            case ControlRequest(id, request):
                return self._asked(id, request.subtype, request.tool_name, request.input)
            case ControlResponse(response) if response.subtype != "success":
                return [Note(f"{response.request_id} was refused: {response.error}")]
            case _:
                return ()

    def _begun(self, session: str, model: str) -> Sequence[Said]:
        """Take note of a turn that begins. The second one is that of the words that waited."""
        self._model = f"{self._provider}:{model or 'unknown'}"
        if not self._is_session_told:
            self._is_session_told, self._session = True, session
            return [Session(session, self._model), *self._usage.memory(session)]
        return [Steered(self._waiting.pop(0))] if self._waiting else ()

    def _streamed(self, event: ModelEvent) -> Sequence[Said]:
        if event.delta is not None:
            if event.delta.type == "text_delta":
                text = event.delta.text
                return () if text.startswith(_API_ERROR) else [TextDelta(text)]
            return [ThinkingDelta(event.delta.thinking)] if event.delta.thinking else ()
        if event.type == "message_start" and event.message is not None:
            self._answer, self._has_words = event.message.id, True
        elif event.type == "message_stop":
            return self._unfinished()
        return ()

    def _spoken(self, message: Spoken, *, is_main: bool) -> Sequence[Said]:
        """Tell a block. Its message has a name of its own; the answer's is that of the first."""
        if is_main and not self._answer:
            self._answer = message.id
        said: list[Said] = []
        for block in message.blocks if is_main else ():
            said += self._block(block)
        if (used := message.usage) is not None and used.is_anything:
            said += self._usage.call(self._model, message.id, used)
            said += self._usage.memory(self._session)
            if is_main:
                self._answer, self._has_words = self._answer, False
        return said

    def _block(self, block: Block) -> Sequence[Said]:
        match block.type:
            case "text" if block.text.startswith(_API_ERROR):
                self._has_words = False  # no answer, so nothing was used
                return ()
            case "text":
                return [Text(block.text, self._answer)] if block.text else ()
            case "thinking":
                return [Thinking(block.thinking, self._answer)] if block.thinking else ()
            case "tool_use":
                self._open[block.id] = block.name
                return [ToolCall(block.id, block.name, passed_on(block.input), self._answer)]
            case _:
                return ()

    def _results(self, blocks: Sequence[Block]) -> Sequence[Said]:
        self._answer = ""
        return [
            ToolResult(
                block.tool_use_id,
                self._open.pop(block.tool_use_id, None),
                passed_on(block.content),
                block.is_error,
            )
            for block in blocks
            if block.type == "tool_result"
        ]

    def _unfinished(self) -> Sequence[Event]:
        """Say of an answer that came without its usage that nobody knows it."""
        answer, has_words = self._answer, self._has_words
        self._answer, self._has_words = "", False
        return list(self._usage.unknown(self._model, answer)) if answer and has_words else ()

    def _turn_ended(self, result: Result) -> Sequence[Said]:
        said: list[Said] = [*self._unfinished(), *self._cut_off()]
        said += self._usage.total(self._model, result.usage or Tokens())
        said += self._usage.memory(self._session)
        end = _end_of(result)
        if self._waiting and not self._is_interrupted:
            how = end.message if isinstance(end, TurnFailed) else "done"
            return [*said, Note(f"a turn ended ({how}); words that waited are answered next")]
        return [*said, end]

    def _asked(self, id: str, subtype: str, tool: str, input: object) -> Sequence[Said]:
        if subtype == "can_use_tool":
            self._questions.add(id)
            return [Permission(id, tool, passed_on(input))]
        why = {"subtype": "error", "request_id": id, "error": f"{subtype} is not offered"}
        refusal = json_line({"type": "control_response", "response": why})
        return [Note(f"it asked for {subtype}, which is not offered"), Send(refusal)]

    def _cut_off(self) -> Sequence[Event]:
        """Close the calls that are open: nothing more comes of them."""
        closed = [ToolResult(i, name, "interrupted", True) for i, name in self._open.items()]
        self._open.clear()
        return closed


def _end_of(result: Result) -> TurnEnd | TurnFailed:
    if not result.is_error:
        return TurnEnd(result.result or "")
    why = result.error.message if result.error else result.result or result.subtype
    if why == _CANCELLED:
        return TurnFailed(FailureKind.OTHER, "the turn was interrupted")
    return TurnFailed(kind_of_error(why), why)


def _prompt(text: str) -> bytes:
    message = {"role": "user", "content": text}
    return json_line(
        {"type": "user", "session_id": "", "message": message, "parent_tool_use_id": None}
    )
