"""Codex's app-server: JSON-RPC over lines, a dialogue about one thread.

`initialize` -> `initialized`, `thread/start` or `thread/resume` -> `turn/start` -> the turn. Each
step is sent when the answer to the one before arrives, and without an opening none is, so a
recorded output plays by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from capsule_drivers.codex import wire
from capsule_drivers.codex.calls import Baseline, kind_of_words
from capsule_drivers.codex.turn import Turn
from capsule_drivers.json_text import passed_on
from capsule_runtime import (
    Answer,
    Decision,
    FailureKind,
    Note,
    Permission,
    Refused,
    Said,
    Send,
    TurnFailed,
)

INITIALIZE, THREAD, TURN = 1, 2, 3
"""The requests that open the dialogue; the ids of later ones count on."""
_ASKS = {
    "item/commandExecution/requestApproval": "shell",
    "item/fileChange/requestApproval": "apply_patch",
    "item/permissions/requestApproval": "permissions",
}
"""The requests that ask for permission, and the tool that it is about."""
_DECISIONS = frozenset({"accept", "acceptForSession", "decline", "cancel"})
_NO_SUCH_METHOD = -32601
_NOTHING: Sequence[Said] = ()


@dataclass(frozen=True, slots=True)
class Opening:
    """What is asked for, step by step."""

    thread: Mapping[str, object]
    """The parameters of `thread/start`, or of `thread/resume` if they hold a `threadId`."""
    words: str


class AppServer:
    """The dialogue with one app-server."""

    def __init__(self, opening: Opening | None = None, baseline: Baseline | None = None) -> None:
        """*baseline* is what the thread had used before."""
        self.turn = Turn(baseline, is_resumed=opening is not None and "threadId" in opening.thread)
        self._opening = opening
        self._last_id = TURN
        self._waiting: list[tuple[str, str]] = []
        """Words to steer with that came before the turn began."""
        self._sent: list[Send] = []
        """What the dialogue was opened with."""
        self._asked: dict[str, wire.Request] = {}
        self._seen: set[str] = set()
        """The ids of all that was asked, also of what has its answer."""
        self._interrupt = 0
        self._is_due_again = False
        """Whether an interrupt came in a moment in which there was no turn."""

    def notified(self, method: bytes, line: bytes) -> Sequence[Said]:
        """Return what a *line* that calls a *method* means.

        Raises:
            msgspec.DecodeError, RecursionError: it cannot be read.
        """
        if self.turn.heeds(method):
            said = self.turn.notified(method, line)
            if self._is_due_again:
                said = [*said, *self._interrupt_again()]
            return [*said, *self._steer_waiting()] if self._waiting else said
        head = wire.heads.decode(line)
        return _NOTHING if head.id is None else self._ask(head.id, head.method, line)

    def answered(self, line: bytes) -> Sequence[Said]:
        """Return what follows from the answer to a request of ours.

        Raises:
            msgspec.DecodeError, RecursionError: it cannot be read.
        """
        response = wire.responses.decode(line)
        result, opening = response.result, self._opening
        if response.error is not None:
            return self._refused(response.id, response.error.message)
        if result.turn is not None:
            self.turn.id = self.turn.id or result.turn.id
            return [*self._interrupt_again(), *self._steer_waiting()]
        if result.thread is not None:
            said = self.turn.opened(result.thread.id, result.model)
            return said if opening is None else [*said, *self._begin_turn(opening)]
        if result.userAgent is None or opening is None:
            return _NOTHING
        method = "thread/resume" if "threadId" in opening.thread else "thread/start"
        thread = call(THREAD, method, opening.thread)
        return self._once(line_of({"method": "initialized"}), thread)

    def interrupt(self) -> Send:
        """Return what ends the turn, or nothing yet if that has not begun."""
        turn = self.turn
        if not turn.id:
            self._is_due_again = True
            return Send(b"")
        asked = self._call("turn/interrupt", {"threadId": turn.thread, "turnId": turn.id})
        self._interrupt = self._last_id
        return asked

    def steer(self, id: str, text: str) -> Send:
        """Return what adds *text* to the turn, or nothing yet if that has not begun."""
        self.turn.steers.add(id)
        if self.turn.id:
            return self._steer(id, text)
        self._waiting.append((id, text))
        return Send(b"")

    def answer(self, id: str, decision: Decision) -> Send | None:
        """Return the *decision* on what the app-server wants to be allowed."""
        request = self._asked.pop(id, None)
        if request is None:
            return None
        word = _word_of(decision)
        result: dict[str, object] = {"decision": word}
        if _ASKS[request.method] == "permissions":
            granted: dict[str, object] = {"permissions": {}, "scope": "turn"}
            if word.startswith("accept"):
                granted["permissions"] = request.params.permissions
            result = granted
        return line_of({"id": request.id, "result": result})

    def _interrupt_again(self) -> Sequence[Said]:
        if not (self._is_due_again and self.turn.id) or self.turn.is_over:
            return _NOTHING
        self._is_due_again = False
        return [self.interrupt()]

    def _call(self, method: str, params: Mapping[str, object]) -> Send:
        self._last_id += 1
        return call(self._last_id, method, params)

    def _once(self, *sent: Send) -> Sequence[Said]:
        """Return what was not *sent* before: an answer that comes twice must begin no second turn."""
        new = [it for it in sent if it not in self._sent]
        self._sent += new
        return new

    def _begin_turn(self, opening: Opening) -> Sequence[Said]:
        input = [{"type": "text", "text": opening.words}]
        turn = call(TURN, "turn/start", {"threadId": self.turn.thread, "input": input})
        if not self._is_due_again or turn in self._sent:
            return self._once(turn)
        if self.turn.is_over:
            return _NOTHING
        self.turn.is_over = True  # nothing is spent on a turn that is not wanted
        return [TurnFailed(FailureKind.OTHER, "interrupted before its turn began")]

    def _steer_waiting(self) -> Sequence[Said]:
        if not self.turn.id:
            return _NOTHING
        waiting, self._waiting = self._waiting, []
        return [self._steer(id, text) for id, text in waiting]

    def _steer(self, id: str, text: str) -> Send:
        params = {
            "threadId": self.turn.thread,
            "expectedTurnId": self.turn.id,
            "input": [{"type": "text", "text": text}],
            "clientUserMessageId": id,  # the message of the user's that it becomes bears it
        }
        return self._call("turn/steer", params)

    def _refused(self, id: int | str | None, message: str) -> Sequence[Said]:
        if id == self._interrupt:
            self._is_due_again = True  # between two calls there is a moment without a turn
            return _NOTHING
        if id not in (INITIALIZE, THREAD, TURN):
            return [Note(f"codex refused a request: {message}")]
        if self.turn.is_over:
            return _NOTHING
        self.turn.is_over = True
        kind = kind_of_words(message)
        return [
            TurnFailed(FailureKind.HARNESS_ERROR if kind is FailureKind.OTHER else kind, message)
        ]

    def _ask(self, number: int | str, method: str, line: bytes) -> Sequence[Said]:
        request = wire.request_of(line) if method in _ASKS else None
        if request is None:
            error = {"code": _NO_SUCH_METHOD, "message": "nobody is here to answer that"}
            note = f"codex asked {method[:100]}, which nobody can answer"
            return [line_of({"id": number, "error": error}), Note(note)]
        params, id = request.params, str(number)
        if id in self._seen:
            return _NOTHING
        self._seen.add(id)
        self._asked[id] = request
        given = {name: getattr(params, name) for name in ("command", "cwd", "reason", "grantRoot")}
        input = {name: value for name, value in given.items() if value is not None}
        input = {**self.turn.tools.changes_of(params.itemId), **input}
        if params.permissions is not None:
            input["permissions"] = passed_on(params.permissions)
        options = [word for word in params.availableDecisions or () if isinstance(word, str)]
        return [Permission(id, _ASKS[request.method], input, options or None)]


def call(id: int, method: str, params: Mapping[str, object]) -> Send:
    """Return a request to the app-server."""
    return line_of({"id": id, "method": method, "params": params})


def line_of(value: object) -> Send:
    """Return *value* as a line."""
    return Send(wire.lines.encode(value) + b"\n")


def _word_of(decision: Decision) -> str:
    """Return the app-server's word for a *decision*; an answer may be one of its words itself."""
    if isinstance(decision, Refused) or decision == Answer(False):
        return "decline"
    word = decision.input if isinstance(decision, Answer) else None
    return word if isinstance(word, str) and word in _DECISIONS else "accept"
