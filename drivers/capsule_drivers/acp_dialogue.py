"""Our side of an ACP conversation: initialize, open a session, prompt, and hear the answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec
from msgspec import UNSET

from capsule_drivers.acp_tools import options_to
from capsule_drivers.acp_turn import Speech, Told
from capsule_drivers.acp_wire import (
    INITIALIZE,
    PROMPT,
    SESSION,
    Line,
    Option,
    Params,
    Problem,
    Result,
    Update,
    call_line,
    choice_line,
    kind_of,
    model_name,
    no_method_line,
    said_of,
)
from capsule_drivers.json_lines import read_block
from capsule_runtime import (
    Decision,
    Event,
    FailureKind,
    Note,
    Permission,
    Refused,
    Remember,
    Said,
    Send,
    Session,
    Steered,
    TurnEnd,
    TurnFailed,
    Usage,
)

_FAILED = {
    "refusal": (FailureKind.DECLINED, "the model declined"),
    "max_tokens": (FailureKind.TRUNCATED, "the answer was cut off at the limit of tokens"),
    "max_turn_requests": (FailureKind.MAX_TURNS, "the agent reached its limit of turns"),
    "cancelled": (FailureKind.OTHER, "the agent cancelled the turn"),
}
_lines = msgspec.json.Decoder(Line)


Count = Callable[[Result | None, Told], Sequence[Usage | Remember]]
"""Tell what a turn used, by the answer to its prompt; that is None when the turn failed."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be said to the agent."""

    workdir: str
    prompt: Sequence[Mapping[str, str]]
    session: str | None = None
    mode: str | None = None
    model: str | None = None
    sets_model: bool = False
    """Whether the agent has to be told the model, which it was not started with."""


class Dialogue:
    """One conversation with an agent, from `initialize` to the end of the turn."""

    def __init__(
        self, count: Count, *, allows_all: bool = False, injects: bool = False, provider: str = ""
    ) -> None:
        """*injects* says that a prompt which is sent meanwhile reaches the turn at work."""
        self.told = Told()
        self._count, self._allows_all, self._injects = count, allows_all, injects
        self._provider = provider or "unknown"
        self._plan: Plan | None = None
        self._hears = False
        """What is said before the session is open is the past, told again as it is loaded."""
        self._is_over = self._is_cancelled = False
        self._last_id = PROMPT
        self._settings: set[int | str] = set()
        self._prompts: set[int | str] = set()
        self._waiting: list[tuple[str, str]] = []
        self._asked: dict[str, tuple[int | str, list[Option]]] = {}
        self._speech = Speech(self.told, injects=injects)

    def begin(self, plan: Plan) -> bytes:
        """Return the first line for the agent."""
        self._plan = plan
        able = {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False}
        client = {"name": "capsule", "version": "1"}
        given = {"protocolVersion": 1, "clientCapabilities": able, "clientInfo": client}
        return call_line("initialize", given, INITIALIZE)

    def receive(self, lines: bytes) -> list[Said]:
        """Return what complete *lines* stand for; nothing after the end of the turn."""
        said: list[Said] = []
        for line in read_block(_lines, lines):
            if self._is_over:
                break
            said += self._heard(line) if isinstance(line, Line) else [line]
        return said

    def interrupt(self) -> Send | None:
        """Return what cancels the turn, or None when there is none yet."""
        if not self._prompts:
            return None
        self._is_cancelled = True
        lines = [call_line("session/cancel", {"sessionId": self.told.session})]
        lines += [choice_line(id, None) for id, _ in self._asked.values()]
        self._asked.clear()
        return Send(b"".join(lines))

    def steer(self, id: str, text: str) -> Send | None:
        """Hand *text* to the turn at work, or keep it until that has ended."""
        if self._is_over:
            return None
        self._waiting.append((id, text))
        return Send(self._prompt_with_waiting() if self._injects and self._prompts else b"")

    def answer(self, id: str, decision: Decision) -> Send | None:
        """Return what answers the question *id*."""
        if (asked := self._asked.pop(id, None)) is None:
            return None
        return Send(choice_line(asked[0], _chosen(asked[1], not isinstance(decision, Refused))))

    def close(self) -> list[Event]:
        """Return what is still to be said of a turn that nobody ended."""
        left = [*self._speech.ended(), *self._count(None, self.told)]
        return [event for event in left if not isinstance(event, Remember)]

    def _heard(self, line: Line) -> Sequence[Said]:
        if line.method is not None:
            if line.method == "session/update":
                return self._updated(line.params or Params())
            return () if line.id is None else self._requested(line.id, line.method, line.params)
        if line.error is not None:
            return self._refused(line.id, line.error)
        if line.id is None or line.result is UNSET:
            return [Note("a line that is neither a request nor an answer")]
        return self._answered(line.id, line.result or Result())

    def _updated(self, params: Params) -> Sequence[Said]:
        self.told.session = self.told.session or params.session_id or ""
        return self._speech.heard(params.update) if params.update and self._hears else ()

    def _requested(self, id: int | str, method: str, params: Params | None) -> Sequence[Said]:
        if method != "session/request_permission" or params is None:
            return [Send(no_method_line(id, method))]
        if str(id) in self._asked:
            return ()
        call = params.tool_call or Update()
        tools = self._speech.tools
        events = self._speech.behind_text([*tools.heard(call), *tools.tell_all()])
        if self._is_cancelled or self._allows_all:
            chosen = None if self._is_cancelled else _chosen(params.options, True)
            return [*events, Send(choice_line(id, chosen))]
        self._asked[str(id)] = (id, params.options)
        name, input = tools.known(call.tool_call_id or "")
        offered = [option.option_id for option in params.options]
        return [*events, Permission(str(id), name, input, offered)]

    def _answered(self, id: int | str, result: Result) -> Sequence[Said]:
        if result.stop_reason is not None:
            return self._turn_ended(id, result.stop_reason, result)
        if id == INITIALIZE:
            return self._initialized(result)
        if id == SESSION:
            return self._opened(result)
        self._settings.discard(id)
        return self._prompt_once_set()

    def _initialized(self, result: Result) -> Sequence[Said]:
        if (plan := self._plan) is None:
            return ()
        given = {"cwd": plan.workdir, "mcpServers": list[object]()}
        if plan.session is None:
            return [Send(call_line("session/new", given, SESSION))]
        able = result.agent_capabilities
        if able is None or not able.load_session:
            return self._fail(FailureKind.SESSION_GONE, "the agent cannot load a session")
        return [Send(call_line("session/load", {"sessionId": plan.session, **given}, SESSION))]

    def _opened(self, result: Result) -> Sequence[Said]:
        if self._hears:
            return ()
        self._hears = True
        plan = self._plan
        id = result.session_id or (plan.session if plan else None) or self.told.session
        self.told.session, self.told.is_loaded = id, result.session_id is None
        wanted = plan.model if plan else None
        if model := wanted or result.model:
            self.told.model = model if ":" in model else model_name(model, self._provider)
        said: list[Said] = [Session(id, result.model or wanted)] if id else []
        if plan is None:
            return said
        if plan.mode is not None:
            said.append(self._set("session/set_mode", {"modeId": plan.mode}))
        if wanted and plan.sets_model and wanted != result.model:
            said.append(self._set("session/set_model", {"modelId": wanted}))
        return [*said, *self._prompt_once_set()]

    def _set(self, method: str, given: Mapping[str, object]) -> Send:
        self._last_id += 1
        self._settings.add(self._last_id)
        return Send(call_line(method, {"sessionId": self.told.session, **given}, self._last_id))

    def _prompt_once_set(self) -> Sequence[Said]:
        if self._plan is None or not self._hears or self._settings or self._prompts:
            return ()
        return [Send(self._prompt(PROMPT, self._plan.prompt))]

    def _prompt(self, id: int, blocks: Sequence[Mapping[str, str]]) -> bytes:
        self._prompts.add(id)
        given = {"sessionId": self.told.session, "prompt": blocks}
        return call_line("session/prompt", given, id)

    def _prompt_with_waiting(self) -> bytes:
        blocks = [{"type": "text", "text": text} for _, text in self._waiting]
        self._speech.handed.update({id: self._speech.answer for id, _ in self._waiting})
        self._waiting.clear()
        self._last_id += 1
        return self._prompt(self._last_id, blocks)

    def _turn_ended(self, id: int | str, stop: str, result: Result) -> Sequence[Said]:
        if self._plan is not None and id not in self._prompts:
            return [Note(f"an answer to a prompt that nobody waits for: {str(id)[:100]}")]
        self._prompts.discard(id)
        said: list[Said] = [*self._speech.ended()]
        said += self._count(result, self.told)
        self.told.turn += 1
        self.told.rounds = 0
        if stop != "end_turn":
            other = (FailureKind.OTHER, f"the turn ended with {stop[:100]!r}")
            return [*said, *self._fail(*_FAILED.get(stop, other))]
        if self._prompts:
            return said
        if self._waiting and not self._is_cancelled:
            return [*said, Send(self._prompt_with_waiting())]
        self._is_over = True
        return [*said, *(Steered(id) for id in self._speech.handed), TurnEnd(self._speech.result)]

    def _refused(self, id: int | str | None, problem: Problem) -> Sequence[Said]:
        words = said_of(problem)
        if id is None or id in self._settings:
            self._settings.discard(id or 0)
            return [Note(f"the agent refused: {words}"), *self._prompt_once_set()]
        if id in self._prompts and len(self._prompts) > 1:
            self._prompts.discard(id)
            return [Note(f"the agent refused words beside the turn at work: {words}")]
        kind = kind_of(problem.code, words)
        is_resumed = self._plan is not None and self._plan.session is not None
        if id == SESSION and kind is not FailureKind.AUTH and (is_resumed or "session" in words):
            kind = FailureKind.SESSION_GONE
        return [*self.close(), *self._fail(kind, words)]

    def _fail(self, kind: FailureKind, words: str) -> Sequence[Event]:
        self._is_over = True
        return [TurnFailed(kind, words)]


def _chosen(options: Sequence[Option], allow: bool) -> str | None:
    return options_to(allow, [(option.option_id, option.kind) for option in options])
