"""Our side of an ACP conversation: initialize, open a session, prompt, and hear the answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec
from msgspec import UNSET

from capsule_drivers.acp_errors import UNSAID, failure_of_stop, kind_of, said_of
from capsule_drivers.acp_questions import Questions
from capsule_drivers.acp_turn import Speech
from capsule_drivers.acp_usage import Told
from capsule_drivers.acp_wire import (
    INITIALIZE,
    PROMPT,
    SESSION,
    Line,
    Params,
    Problem,
    Result,
    Update,
    blocks_of,
    call_line,
    is_model,
    model_name,
    no_method_line,
    number_of,
    opening_line,
)
from capsule_drivers.json_lines import read_block
from capsule_runtime import (
    Decision,
    Event,
    FailureKind,
    Note,
    Remember,
    Said,
    Send,
    Session,
    Steered,
    TurnEnd,
    TurnFailed,
    Usage,
)

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
        self._count, self._injects = count, injects
        self._provider = provider or "unknown"
        self._plan: Plan | None = None
        self._hears = False
        """What is said before the session is open is the past, told again as it is loaded."""
        self._is_asked = self._is_over = self._is_cancelled = False
        self._cost_a_call = False
        """Whether the model was asked, and had said nothing, when the turn was cancelled."""
        self._last_id = PROMPT
        self._settings: dict[int | str, str] = {}
        self._own_model: str | None = None
        """What answers if the agent takes no other model."""
        self._prompts: set[int | str] = set()
        self._waiting: list[tuple[str, str]] = []
        self._speech = Speech(self.told, injects=injects)
        self._questions = Questions(self._speech.tools, allows_all=allows_all)

    def begin(self, plan: Plan) -> bytes:
        """Return the first line for the agent."""
        self._plan = plan
        return opening_line()

    def receive(self, lines: bytes) -> list[Said]:
        """Return what complete *lines* stand for; nothing after the end of the turn."""
        said: list[Said] = []
        for line in read_block(_lines, lines):
            if self._is_over:
                break
            said += self._heard(line) if isinstance(line, Line) else [line]
        return said

    def interrupt(self) -> Send | None:
        """Return what cancels the turn, or None when there is none yet; then none will be begun."""
        if not self._is_cancelled:
            self._is_cancelled, self._cost_a_call = True, self._speech.awaits_model
        if not self._prompts:
            return None
        cancel = call_line("session/cancel", {"sessionId": self.told.session})
        return Send(cancel + self._questions.withdraw())

    def steer(self, id: str, text: str) -> Send | None:
        """Hand *text* to the turn at work, or keep it until that has ended."""
        if self._is_over or self._is_cancelled:
            return None
        self._waiting.append((id, text))
        return Send(self._prompt_with_waiting() if self._injects and self._prompts else b"")

    def answer(self, id: str, decision: Decision) -> Send | None:
        """Return what answers the question *id*."""
        return self._questions.answer(id, decision)

    def close(self) -> list[Event]:
        """Return what is still to be said of a turn that nobody ended."""
        if self._prompts and self._speech.awaits_model:
            self.told.rounds += 1  # it has perhaps been asked, and that is not free
        return self._left()

    def _left(self) -> list[Event]:
        left = [*self._speech.ended(), *self._count(None, self.told)]
        return [event for event in left if not isinstance(event, Remember)]

    def _heard(self, line: Line) -> Sequence[Said]:
        if line.method is not None:
            if line.method == "session/update":
                return self._updated(line.params or Params())
            return () if line.id is None else self._requested(line.id, line.method, line.params)
        if line.error is not None:
            return self._refused(None if line.id is None else number_of(line.id), line.error)
        if line.id is None or line.result is UNSET:
            return [Note("a line that is neither a request nor an answer")]
        return self._answered(number_of(line.id), line.result or Result())

    def _updated(self, params: Params) -> Sequence[Said]:
        self.told.session = self.told.session or params.session_id or ""
        return self._speech.heard(params.update or Update(), is_past=not self._hears)

    def _requested(self, id: int | str, method: str, params: Params | None) -> Sequence[Said]:
        if method != "session/request_permission" or params is None:
            return [Send(no_method_line(id, method))]
        if not self._questions.is_new(id):
            return ()
        tools = self._speech.tools
        known = [*tools.heard(params.tool_call or Update()), *tools.tell_all()]
        return [*self._speech.behind_text(known), self._questions.asked(id, params)]

    def _answered(self, id: int | str, result: Result) -> Sequence[Said]:
        if result.stop_reason is not None:
            return self._turn_ended(id, result.stop_reason, result)
        if id in self._prompts:
            self._prompts.discard(id)
            return [*self._left(), *self._fail(*UNSAID)]
        if id == INITIALIZE:
            return self._initialized(result)
        if id == SESSION:
            return self._opened(result)
        self._settings.pop(id, None)
        return self._prompt_once_set()

    def _initialized(self, result: Result) -> Sequence[Said]:
        if (plan := self._plan) is None or self._is_asked:
            return ()
        self._is_asked = True
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
        self.told.session = id
        self.told.is_loaded = result.session_id is None if plan is None else bool(plan.session)
        wanted = plan.model if plan else None
        if model := wanted or result.model:
            self.told.model = model if ":" in model else model_name(model, self._provider)
        said: list[Said] = [Session(id, result.model or wanted)] if id else []
        if plan is None:
            return said
        if plan.mode is not None:
            said.append(self._set("session/set_mode", {"modeId": plan.mode}))
        model = (wanted.partition(":")[2] or wanted) if wanted and plan.sets_model else None
        if model and not is_model(result.model, model):
            self._own_model = result.model
            said.append(self._set("session/set_model", {"modelId": model}))
        return [*said, *self._prompt_once_set()]

    def _set(self, method: str, given: Mapping[str, object]) -> Send:
        self._last_id += 1
        self._settings[self._last_id] = method
        return Send(call_line(method, {"sessionId": self.told.session, **given}, self._last_id))

    def _prompt_once_set(self) -> Sequence[Said]:
        if self._plan is None or not self._hears or self._settings or self._prompts:
            return ()
        if self._is_cancelled:
            return self._fail(FailureKind.OTHER, "it was stopped before it had its task")
        return [Send(self._prompt(PROMPT, self._plan.prompt))]

    def _prompt(self, id: int, blocks: Sequence[Mapping[str, str]]) -> bytes:
        self._prompts.add(id)
        given = {"sessionId": self.told.session, "prompt": blocks}
        return call_line("session/prompt", given, id)

    def _prompt_with_waiting(self) -> bytes:
        blocks = blocks_of([text for _, text in self._waiting])
        self._speech.handed.update({id: self._speech.answer for id, _ in self._waiting})
        self._waiting.clear()
        self._last_id += 1
        return self._prompt(self._last_id, blocks)

    def _turn_ended(self, id: int | str, stop: str, result: Result) -> Sequence[Said]:
        if self._plan is not None and id not in self._prompts:
            return [Note(f"an answer to a prompt that nobody waits for: {str(id)[:100]}")]
        self._prompts.discard(id)
        if stop == "cancelled" and self._speech.awaits_model:
            self.told.rounds += self._cost_a_call or not (self.told.rounds or self.told.calls)
        said: list[Said] = [*self._speech.ended()]
        said += self._count(result, self.told)
        self.told.next_turn()
        if stop != "end_turn":
            return [*said, *self._fail(*failure_of_stop(stop))]
        if self._prompts:
            return said
        if self._waiting and not self._is_cancelled:
            return [*said, Send(self._prompt_with_waiting())]
        self._is_over = True
        return [*said, *(Steered(id) for id in self._speech.handed), TurnEnd(self._speech.result)]

    def _refused(self, id: int | str | None, problem: Problem) -> Sequence[Said]:
        words = said_of(problem)
        if id is None or self._is_unasked(id):
            return [Note(f"the agent refused: {words}")]
        if id in self._settings:
            return self._not_set(self._settings.pop(id), words)
        if id in self._prompts and len(self._prompts) > 1:
            self._prompts.discard(id)
            return [Note(f"the agent refused words beside the turn at work: {words}")]
        kind = kind_of(problem.code, words)
        is_resumed = "session" in words if self._plan is None else self._plan.session is not None
        if id == SESSION and kind is not FailureKind.AUTH and is_resumed:
            kind = FailureKind.SESSION_GONE
        return [*self._left(), *self._fail(kind, words)]

    def _is_unasked(self, id: int | str) -> bool:
        """Whether nobody waits for an answer to *id*. What was asked is not known of a recording."""
        opening = () if self._hears else (INITIALIZE, SESSION)
        waited = (*opening, *self._prompts, *self._settings)
        return self._plan is not None and id not in waited

    def _not_set(self, method: str, words: str) -> Sequence[Said]:
        """A mode may be what keeps the agent from changing anything; a model is only a choice."""
        if method == "session/set_mode":
            return self._fail(FailureKind.OTHER, f"the agent refused the mode: {words}")
        if self._own_model:
            self.told.model = model_name(self._own_model, self._provider)
        return [Note(f"the agent refused the model: {words}"), *self._prompt_once_set()]

    def _fail(self, kind: FailureKind, words: str) -> Sequence[Event]:
        self._is_over = True
        return [TurnFailed(kind, words)]
