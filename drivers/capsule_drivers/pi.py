"""pi (`pi --mode rpc`): commands on stdin, events on stdout. See drivers/README.md."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import msgspec
from msgspec import Struct

from capsule_drivers.json_text import decoded, unread
from capsule_drivers.pi_answers import Answers
from capsule_drivers.pi_endings import Ending, ending_by, ending_by_exit, ending_of, unread_ending
from capsule_drivers.pi_launch import DESCRIPTION, PiConfig, plan, provider_of
from capsule_drivers.pi_lines import (
    AgentEnd,
    AgentStart,
    CompactionEnd,
    Dialog,
    Line,
    MessageEnd,
    PiMessage,
    PiSession,
    Response,
    RetryEnd,
    RetryStart,
    State,
    ToolEnd,
    ToolStart,
    TurnStart,
    TurnStop,
    Update,
    decode_line,
)
from capsule_drivers.pi_tools import ToolsInUse
from capsule_drivers.reading import json_line, kind_of_error
from capsule_runtime import (
    Decision,
    Description,
    Event,
    Exit,
    LaunchPlan,
    LaunchRequest,
    Note,
    Retrying,
    Said,
    Send,
    Session,
    Steered,
    TextDelta,
    ThinkingDelta,
    TurnEnd,
    TurnFailed,
    Usage,
)

_VERDICT, _OVER, _SURELY = "capsule-verdict", "capsule-over", "capsule-surely"
_LAST = ("stop", "length", "aborted")
"""Why an answer ended after which no tool is used and nothing tried again."""
_ANSWER = b'{"type":"message_end","message":{"role":"assistant"'
_SHORTENED = b'{"type":"compaction_end"'
_END = b'{"type":"agent_end"'
_DIALOGS = ("select", "confirm", "input", "editor")


class PiDriver:
    """Drive pi over its RPC mode."""

    Config: ClassVar[type[Struct]] = PiConfig

    def __init__(self) -> None:
        self._session = ""
        self._model = "unknown:unknown"
        self._failures: set[float | str] = set()
        """The moments of answers that were errors, and have been judged."""
        self._tools = ToolsInUse()
        self._answers = Answers(self._tools)
        self._steers: list[tuple[str, str]] = []
        """Words that pi was steered with and does not have yet, each with its id."""
        self._failed: TurnEnd | TurnFailed | None = None
        """How the turn failed, unless pi tries again."""
        self._is_over = False
        self._last: PiMessage | None = None
        """The answer that ended a turn, while none began after it."""
        self._compactions: list[object] = []
        """What came of each time that the conversation was shortened."""

    def describe(self) -> Description:
        return DESCRIPTION

    def launch(self, request: LaunchRequest) -> LaunchPlan:
        self._answers.writes_for_an_hour = request.env.get("PI_CACHE_RETENTION") == "long"
        state = {"id": "capsule-state", "type": "get_state"}
        prompt = {"id": "capsule-task", "type": "prompt", "message": request.message.text}
        stdin = json_line(state) + json_line(prompt)
        return replace(plan(request, provider_of(request)), stdin=stdin)

    def receive(self, lines: bytes) -> Sequence[Said]:
        said: list[Said] = []
        for line in lines.split(b"\n"):
            if not line or line.isspace():
                continue
            try:
                said += self._ending_once(self._read(decoded(line, decode_line)))
            except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as exc:
                said.append(unread(line, exc))
                if line.startswith(_ANSWER):  # unknown is not free
                    said += self._answers.broken_off(self._model) or [Usage(self._model)]
                elif line.startswith(_SHORTENED):
                    said.append(Usage(self._model))
                elif line.startswith(_END):
                    said += self._ending_once(self._agent_ended(unread_ending(self._last)))
        return said

    def interrupt(self) -> Send | None:
        return Send(json_line({"id": "capsule-abort", "type": "abort"}))

    def steer(self, id: str, text: str) -> Send | None:
        self._steers.append((text, id))
        return Send(json_line({"id": id, "type": "steer", "message": text}))

    def answer(self, id: str, decision: Decision) -> Send | None:
        return None  # pi has no permissions: it never asks

    def ended(self, exit: Exit) -> Sequence[Event]:
        return [*self._cut_off(), self._failed or ending_by_exit(exit)]

    def _read(self, line: Line) -> Sequence[Said]:
        match line:
            case Update(change, answer):
                self._answers.begin(answer)
                if change.type == "text_delta":
                    return [TextDelta(change.delta)]
                return [ThinkingDelta(change.delta)] if change.type == "thinking_delta" else ()
            case MessageEnd(message):
                return self._message(message)
            case ToolStart():
                return self._tools.started(line)
            case ToolEnd():
                return self._tools.gave(line)
            case AgentStart():
                self._failed = None
            case TurnStart():
                self._last = None
            case TurnStop(message):
                return self._turn_stopped(message)
            case AgentEnd():
                return self._agent_ended(ending_of(line))
            case RetryStart() | RetryEnd() | CompactionEnd():
                return self._tried_again(line)
            case Response():
                return self._answered(line)
            case PiSession(id):
                return self._in_session(id, None)
            case Dialog(id, method):
                return self._asked(id, method)
            case _:
                pass  # it repeats what other lines say, or says that something goes on
        return ()

    def _message(self, message: PiMessage) -> Sequence[Said]:
        if message.role == "user":
            return self._taken(message.text) if self._steers else ()
        if message.role != "assistant":
            return ()
        self._model = message.model_name
        return self._answers.tell(message)

    def _turn_stopped(self, message: PiMessage) -> Sequence[Said]:
        if message.role != "assistant":
            return ()
        self._last, used = message, self._answers.count(message)
        if message.stop_reason not in _LAST:
            return used
        # What says that this was the last turn repeats all of them, and may be too long to be read.
        return [*used, Send(json_line({"id": _OVER, "type": "get_state"}))]

    def _is_idle(self, id: str, state: State) -> Sequence[Said]:
        """End the turn if pi waits, and nothing else says so. Its lines may be late: ask twice."""
        last = self._last if self._last and self._last.stop_reason in _LAST else None
        if last is None or self._is_over or state.is_streaming or state.is_compacting:
            return ()
        if id == _OVER:
            return [Send(json_line({"id": _SURELY, "type": "get_state"}))]
        return [*self._cut_off(), ending_by(last).told]

    def _taken(self, text: str) -> Sequence[Said]:
        for steer in self._steers:
            if steer[0] == text:
                self._steers.remove(steer)
                return [Steered(steer[1])]
        return ()

    def _agent_ended(self, ending: Ending) -> Sequence[Said]:
        closed = self._cut_off()
        if not ending.may_be_tried_again:
            return [*closed, ending.told]
        if ending.answer in self._failures:
            return closed
        if ending.answer is not None:
            self._failures.add(ending.answer)
        self._failed = ending.told
        # Whether pi tries again comes before the answer to this.
        return [*closed, Send(json_line({"id": _VERDICT, "type": "get_state"}))]

    def _tried_again(self, line: RetryStart | RetryEnd | CompactionEnd) -> Sequence[Said]:
        match line:
            case RetryStart(attempt, most, delay, why):
                self._failed = None
                seconds = None if delay is None else delay / 1000
                return [Retrying(attempt, why, most, seconds)]
            case RetryEnd(success, why):
                if success:
                    return ()
                failed = self._failed or TurnFailed(kind_of_error(why), why)
                self._failed = None
                return [*self._cut_off(), failed]
            case CompactionEnd(will_retry, result):
                used = list[Said]()
                if result is not None and result not in self._compactions:
                    self._compactions.append(result)
                    call = f"compaction-{len(self._compactions)}"
                    used.append(Usage(self._model, call_id=call))
                if will_retry:
                    self._failed = None
                return [*used, *self._verdict()]

    def _answered(self, response: Response) -> Sequence[Said]:
        if not response.success:
            why = response.error or f"pi refused {response.command}"
            if response.command == "prompt":
                return [TurnFailed(kind_of_error(why), why)]
            return [Note(f"pi refused a {response.command}: {why}")]
        if response.command != "get_state":
            return ()
        state = response.state
        if response.id in (_OVER, _SURELY):
            return self._is_idle(response.id, state)
        if response.id == _VERDICT:
            return () if state.is_compacting else self._verdict()
        model = f"{state.model.provider}:{state.model.id}" if state.model else None
        self._model = model or self._model
        return self._in_session(state.session_id, model)

    def _in_session(self, id: str, model: str | None) -> Sequence[Said]:
        if not id or id == self._session:
            return ()
        self._session = id
        return [Session(id, model)]

    def _verdict(self) -> Sequence[Said]:
        failed, self._failed = self._failed, None
        return () if failed is None else [failed]

    def _asked(self, id: str, method: str) -> Sequence[Said]:
        """Leave a dialog of an extension: nobody is there to answer it."""
        if method not in _DIALOGS:
            return ()
        leave = {"type": "extension_ui_response", "id": id, "cancelled": True}
        return [Note(f"an extension asked for a {method}; nobody answers"), Send(json_line(leave))]

    def _cut_off(self) -> list[Event]:
        """Close the answer and the calls that are open: nothing more comes of them."""
        return [*self._answers.broken_off(self._model), *self._tools.cut_off()]

    def _ending_once(self, said: Sequence[Said]) -> Sequence[Said]:
        """Leave out an end of a turn that is over."""
        if not said or not isinstance(said[-1], TurnEnd | TurnFailed):
            return said
        was_over, self._is_over = self._is_over, True
        return said[:-1] if was_over else said
