"""Qwen Code, in its two-way stream-json. See drivers/README.md."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import msgspec
from msgspec import Struct

from capsule_drivers.json_text import decoded, passed_on, unread
from capsule_drivers.lines_heard import LinesHeard
from capsule_drivers.qwen_launch import DESCRIPTION, QwenCodeConfig, plan, provider_and_model
from capsule_drivers.qwen_lines import (
    Again,
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
from capsule_drivers.qwen_lines import (
    Answer as Spoken,
)
from capsule_drivers.qwen_turns import Turns, prompt, retrying
from capsule_drivers.qwen_usage import SessionUsage
from capsule_drivers.reading import json_line
from capsule_runtime import (
    Decision,
    Description,
    Event,
    Exit,
    LaunchPlan,
    LaunchRequest,
    Note,
    Permission,
    Refused,
    Said,
    Send,
    Session,
    Text,
    TextDelta,
    Thinking,
    ThinkingDelta,
    ToolCall,
    ToolResult,
    Usage,
)

_API_ERROR = "[API Error"
"""How it begins what it says in the model's place."""
_ANSWER = b'{"type":"assistant"'
_RESULT = b'{"type":"result"'


class QwenCodeDriver:
    """Drive Qwen Code over stdin and stdout."""

    Config: ClassVar[type[Struct]] = QwenCodeConfig

    def __init__(self) -> None:
        self._provider = "openai"
        self._model = "unknown:unknown"
        self._session = ""
        self._heard = LinesHeard()
        self._usage = SessionUsage()
        self._answer = ""
        """The name of the model answer that is being written."""
        self._has_words = False
        """Whether that answer has anything, of which nobody said yet what it used."""
        self._open: dict[str, str] = {}
        """Tools that were called and gave nothing yet: id to name."""
        self._turns = Turns()
        self._questions: set[str] = set()

    def describe(self) -> Description:
        return DESCRIPTION

    def launch(self, request: LaunchRequest) -> LaunchPlan:
        self._provider, model = provider_and_model(request)
        if request.session:
            self._usage.resume(request.session, request.memory)
        begin = {"subtype": "initialize"}
        hello = {"type": "control_request", "request_id": "capsule-begin", "request": begin}
        stdin = json_line(hello) + prompt(request.message.text)
        return replace(plan(request, model), stdin=stdin)

    def receive(self, lines: bytes) -> Sequence[Said]:
        said: list[Said] = []
        for line in lines.split(b"\n"):
            if not line or line.isspace():
                continue
            try:
                found = decoded(line, decode_line)
            except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as exc:
                said += [unread(line, exc), *self._hidden_in(line)]
            else:
                if self._is_new(found):
                    said += self._read(found)
        return said

    def interrupt(self) -> Send | None:
        self._turns.stop()
        stop = {"subtype": "interrupt"}
        return Send(
            json_line({"type": "control_request", "request_id": "capsule-stop", "request": stop})
        )

    def steer(self, id: str, text: str) -> Send | None:
        self._turns.wait_for(id, text)
        return Send(b"")

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
        owed = self._usage.owed(self._model)
        return [*self._unfinished(), *owed, *self._cut_off(), self._turns.left(exit)]

    def _is_new(self, line: Line) -> bool:
        match line:
            case StreamEvent() | UserLine() | Result():
                name = line.uuid or ""
            case SystemLine():  # `init` has the same name in each turn
                name = "" if line.subtype == "init" else line.uuid or ""
            case AssistantLine():
                name = line.uuid or line.message.id
            case ControlRequest(id):
                name = f"request {id}"
            case _:
                return True
        return not name or self._heard.is_new(name)

    def _hidden_in(self, line: bytes) -> Sequence[Said]:
        """Return what a *line* that nobody can read may have hidden. Unknown is not free."""
        if line.startswith(_ANSWER):
            return [Usage(self._model)]
        if line.startswith(_RESULT):
            self._usage.miss_total()
            return self._turn_ended(None)
        return ()

    def _read(self, line: Line) -> Sequence[Said]:
        match line:
            case StreamEvent(event, parent):
                return () if parent else self._streamed(event)
            case AssistantLine(message, parent) if parent:
                return self._spoken(message, is_main=False)
            case AssistantLine(message, _, session):
                return [*self._begun(session, message.model), *self._spoken(message, is_main=True)]
            case UserLine(message, parent):
                return () if parent else self._results(message.blocks)
            case SystemLine("init", session, model):
                return self._begun(session, model)
            case SystemLine("retry", data=Again() as again):
                return [*self._unfinished(), *retrying(again)]
            case Result():
                return self._turn_ended(line)
            case ControlRequest(id, request):
                return self._asked(id, request.subtype, request.tool_name, request.input)
            case ControlResponse(response) if response.subtype != "success":
                return [Note(f"{response.request_id} was refused: {response.error}")]
            case _:
                return ()

    def _begun(self, session: str, model: str) -> Sequence[Said]:
        """Take note of a turn that is under way, of which the beginning may be lost."""
        taken = self._turns.taken()
        if not session or self._session:
            return taken
        self._session, self._model = session, f"{self._provider}:{model or 'unknown'}"
        return [Session(session, self._model), *self._usage.memory(session), *taken]

    def _streamed(self, event: ModelEvent) -> Sequence[Said]:
        if event.delta is not None:
            if event.delta.type == "text_delta":
                text = event.delta.text
                return () if text.startswith(_API_ERROR) else [TextDelta(text)]
            return [ThinkingDelta(event.delta.thinking)] if event.delta.thinking else ()
        if event.type == "message_start" and event.message is not None:
            self._answer, self._has_words = event.message.id, True
            return self._turns.taken()
        if event.type == "message_stop":
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
            # A sub-agent may have a model of its own, and so has a fallback.
            model = f"{self._provider}:{message.model}" if message.model else self._model
            said += self._usage.call(model, message.id, used)
            said += self._usage.memory(self._session)
            if is_main:
                self._has_words = False
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

    def _turn_ended(self, result: Result | None) -> Sequence[Said]:
        """End a turn, by its *result* if that can be read."""
        said: list[Said] = [*self._turns.taken(), *self._unfinished(), *self._cut_off()]
        if result is not None:
            said += self._usage.total(self._model, result.usage or Tokens())
            said += self._usage.memory(self._session)
        if not self._turns.has_next:
            said += self._usage.owed(self._model)
        return [*said, *self._turns.ended(result)]

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
