"""Claude Code: `claude -p` with stream-json both ways, measured with 2.1.332.

The task, words to steer by, interrupts and answers to permission prompts are lines on stdin; stdin
stays open, and its end lets the harness leave. What each call used stands in `message_delta`; the
numbers on `assistant` lines are placeholders. `result` tells what all calls of the turn used, hidden
ones too: as a total, so nothing counts twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, assert_never

import msgspec
from msgspec import Struct

from capsule_drivers.claude_endings import end_of
from capsule_drivers.claude_launch import ClaudeCodeConfig, control, line_of, plan, user_line
from capsule_drivers.claude_turns import Turns
from capsule_drivers.claude_usage import Account, named
from capsule_drivers.exits import UNREAD_END
from capsule_drivers.json_text import NOTE_BYTES, passed_on, unread
from capsule_drivers.lines_heard import LinesHeard
from capsule_drivers.stream_json import (
    Answer as Words,
)
from capsule_drivers.stream_json import (
    AssistantLine,
    BlockDelta,
    ControlRequest,
    ControlResponse,
    Lifecycle,
    Line,
    MessageDelta,
    MessageStart,
    Result,
    StreamEvent,
    SystemLine,
    UserLine,
    read_block,
    read_line,
)
from capsule_runtime import (
    Ack,
    Answer,
    Decision,
    Description,
    Event,
    Exit,
    LaunchPlan,
    LaunchRequest,
    Note,
    Permission,
    Refused,
    Retrying,
    Said,
    Send,
    Session,
    Text,
    TextDelta,
    Thinking,
    ThinkingDelta,
    ToolCall,
    ToolResult,
)

_SYNTHETIC = "<synthetic>"
_ENDS = (b'{"type":"result"', b'{"duration_api_ms"')
"""How the line that ends a turn begins."""
_USAGE_MARKS = (b'"message_delta"', b'"message_start"', b'"type":"result"', b'"duration_api_ms"')


class ClaudeCodeDriver:
    """Drive Claude Code."""

    Config: ClassVar[type[Struct]] = ClaudeCodeConfig

    def __init__(self) -> None:
        self._session: Session | None = None
        self._account = Account()
        self._open_tools: dict[str, str] = {}
        self._asked: dict[str, object] = {}
        """The input of each tool that waits for a permission, by request."""
        self._heard = LinesHeard()
        self._turns = Turns()
        self._result: Result | None = None
        self._error: str | None = None

    def describe(self) -> Description:
        return Description(
            harness="Claude Code",
            command=("claude",),
            version_args=("--version",),
            tested_versions=("2.1.332",),
            install="npm install -g @anthropic-ai/claude-code",
            keys=("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"),
            streams_text=True,
            usage="per-call",
            resumes=True,
            steers=True,
            asks_permission=True,
        )

    def launch(self, request: LaunchRequest) -> LaunchPlan:
        return plan(request)

    def receive(self, lines: bytes) -> Sequence[Said]:
        said = list[Said]()
        if (found := read_block(lines)) is None:
            for line in lines.split(b"\n"):
                if line.strip():
                    self._hear_alone(line, said)
            return said
        for value in found:
            self._hear(value, said)
        return said

    def interrupt(self) -> Send | None:
        self._turns.stop()
        # Left in its queue, words would get a turn that nobody sees the end of.
        asked = {"subtype": "interrupt", "cancel_queued": True}
        return line_of({"type": "control_request", "request_id": "interrupt", "request": asked})

    def steer(self, id: str, text: str) -> Send | None:
        self._turns.wait_for(id)
        return Send(user_line(id, [{"type": "text", "text": text}]))

    def answer(self, id: str, decision: Decision) -> Send | None:
        if id not in self._asked:
            return None
        wanted = self._asked.pop(id)
        match decision:
            case Refused(_, message):
                verdict: object = {"behavior": "deny", "message": message}
            case Ack() | Answer():
                verdict = {"behavior": "allow", "updatedInput": wanted}
            case _:
                assert_never(decision)
        return line_of(control({"subtype": "success", "request_id": id, "response": verdict}))

    def ended(self, exit: Exit) -> Sequence[Event]:
        return [*self._account.close(), *self._close_tools(), self._turns.left(exit)]

    def _hear_alone(self, line: bytes, said: list[Said]) -> None:
        """Read one line of a block of which some line needs care."""
        try:
            value = read_line(line)
        except (msgspec.DecodeError, RecursionError) as exc:
            said.append(unread(line, exc))
            if any(mark in line for mark in _USAGE_MARKS):
                said.append(self._account.unread(is_end=b'"message_delta"' in line))
            if line.startswith(_ENDS):
                self._end(None, said)
            return
        self._hear(value, said)

    def _hear(self, line: Line, said: list[Said]) -> None:
        if line.uuid is not None and not self._heard.is_new(line.uuid):
            return
        match line:
            case StreamEvent(event, parent, answer, name):
                if type(event) is BlockDelta:
                    if parent is None:
                        if event.delta.text:
                            said.append(TextDelta(event.delta.text))
                        elif event.delta.thinking:
                            said.append(ThinkingDelta(event.delta.thinking))
                elif type(event) is MessageStart:
                    if parent is None:
                        self._turns.goes_on()
                    said += self._account.begin(parent, event.message)
                elif type(event) is MessageDelta:
                    said.append(self._account.count(parent, answer, name, event))
            case AssistantLine():
                self._assistant(line, said)
            case UserLine():
                self._user(line, said)
            case SystemLine():
                self._system(line, said)
            case ControlRequest(id, asking):
                if self._heard.is_new(f"request {id}"):
                    self._ask(id, asking.subtype, asking.tool_name, asking.input, said)
            case ControlResponse(told):
                if told.subtype == "error":
                    said.append(Note(f"Claude Code refused {told.request_id}: {told.error}"))
            case Lifecycle(id, state):
                self._queue_moved(id, state, said)
            case Result():
                if line != self._result:  # one without a name, again
                    self._result = line
                    self._end(line, said)
            case _:
                pass

    def _assistant(self, line: AssistantLine, said: list[Said]) -> None:
        message = line.message
        if message.model == _SYNTHETIC:
            self._error = line.error or self._error
            said.append(Note(f"Claude Code says in the model's place: {_text_of(message)}"))
            return
        if line.parent_tool_use_id is None:
            self._turns.goes_on()
            said += self._turns.took(line.taken or ())
            if line.session_id and self._session is None:  # nobody heard of its beginning
                self._session = Session(line.session_id, named(message.model))
                said.append(self._session)
        for block in message.blocks:
            if block.type == "tool_use" and block.id:
                self._open_tools[block.id] = name = block.name or "unknown"
                said.append(ToolCall(block.id, name, passed_on(block.input), message.id))
            elif line.parent_tool_use_id is not None:
                continue  # a sub-agent's words are no part of the answer
            elif block.type == "text" and block.text:
                said.append(Text(block.text, message.id))
            elif block.type == "thinking" and block.thinking:
                said.append(Thinking(block.thinking, message.id))

    def _user(self, line: UserLine, said: list[Said]) -> None:
        if line.is_replay and line.uuid is not None:
            said += self._turns.took([line.uuid])
        for block in line.message.blocks:
            if block.type == "tool_result" and block.tool_use_id:
                name = self._open_tools.pop(block.tool_use_id, None)
                content = passed_on(block.content)
                said.append(ToolResult(block.tool_use_id, name, content, block.is_error))

    def _system(self, line: SystemLine, said: list[Said]) -> None:
        said += self._turns.took(line.taken or ())
        if line.subtype == "init" and line.session_id:
            model = named(line.model) if line.model else None
            self._account.model = line.model
            session = Session(line.session_id, model, line.api_key_source)
            if session != self._session:  # it comes again with every turn
                self._session = session
                said.append(session)
        elif line.subtype == "api_retry":
            status = "" if line.error_status is None else f" (HTTP {line.error_status})"
            delay = None if line.retry_delay_ms is None else line.retry_delay_ms / 1000
            reason = f"{line.error or 'unknown'}{status}"
            said.append(Retrying(line.attempt or 1, reason, line.max_retries, delay))
        elif line.subtype == "informational" and isinstance(line.content, str):
            said.append(Note(line.content))

    def _queue_moved(self, id: str, state: str, said: list[Said]) -> None:
        if state in ("started", "completed"):
            said += self._turns.took([id])
        elif state == "cancelled":
            said += self._turns.dropped(id)

    def _ask(self, id: str, subtype: str, tool: str, input: object, said: list[Said]) -> None:
        if subtype == "can_use_tool":
            self._asked[id] = input
            said.append(Permission(id, tool, passed_on(input), ["allow", "deny"]))
            return
        # It waits for an answer to everything it asks.
        error = {"subtype": "error", "request_id": id, "error": f"{subtype} is not supported"}
        said += [Note(f"Claude Code asked for {subtype}, and was refused"), line_of(control(error))]

    def _end(self, result: Result | None, said: list[Said]) -> None:
        """End a turn, by its *result* if that can be read."""
        said += self._account.close()
        if result is not None:
            said += self._account.add_up(result)
            said += self._turns.took(result.taken or ())
        said += self._close_tools()
        said += self._turns.ended(UNREAD_END if result is None else end_of(result, self._error))

    def _close_tools(self) -> list[Event]:
        """End the tools that were cut off: nobody else will."""
        open_tools, self._open_tools = self._open_tools, {}
        return [
            ToolResult(id, name, "interrupted", is_error=True) for id, name in open_tools.items()
        ]


def _text_of(message: Words) -> str:
    words = [block.text for block in message.blocks if block.text]
    return " ".join(words)[:NOTE_BYTES] or "nothing"
