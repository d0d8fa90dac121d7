"""Speak the native protocol from a harness written in Python.

    import os

    import capsule_agent

    def work(task, agent):
        with agent.tool("list", {"folder": task.workdir}) as call:
            names = os.listdir(task.workdir)
            call.result(f"{len(names)} names")
        return f"This folder holds {len(names)} names."

    capsule_agent.serve(work)

Events leave as JSON lines on stdout, one write each; lines from the runtime are read when
`interrupted()`, `checkpoint()` or `steers()` asks for them, so nothing runs behind the
author's back. A `print()` to stdout is not an event: the runtime keeps it as a note.

This file stands alone: the standard library only, Python 3.9 or later, no effects at import,
and no `typing` or `dataclasses`, which would double the time it takes to import.
"""

from __future__ import annotations

import json
import os
import select
from _thread import allocate_lock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType
    from typing import Any

__all__ = [
    "FAILURE_KINDS",
    "PROTOCOL",
    "USAGE_FIELDS",
    "Agent",
    "Interrupted",
    "ProtocolError",
    "Steer",
    "Task",
    "ToolCall",
    "serve",
]

PROTOCOL = 1
FAILURE_KINDS = (
    "auth",
    "quota",
    "rate-limit",
    "max-turns",
    "declined",
    "permission",
    "context-length",
    "truncated",
    "session-gone",
    "indeterminate",
    "harness-error",
    "other",
)
USAGE_FIELDS = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "cache_write_1h_tokens",
    "reasoning_tokens",
    "cost_usd",
)


class ProtocolError(Exception):
    """Say that a line does not fit the protocol: the runtime's, or one of ours."""


class Interrupted(BaseException):
    """Say that the runtime asked this run to stop.

    Like `KeyboardInterrupt` it is no `Exception`, so that `except Exception` lets it pass.
    """


class Task:
    """Hold what the runtime asks for: the first line on stdin."""

    __slots__ = (
        "context",
        "data",
        "id",
        "limits",
        "metadata",
        "out",
        "parts",
        "run",
        "session",
        "text",
        "workdir",
    )

    def __init__(self, message: Mapping[str, Any]) -> None:
        self.run: str = message["run"]
        self.id: str = message["message"]["id"]
        self.parts: list[dict[str, Any]] = message["message"]["parts"]
        self.text = "\n\n".join(part["text"] for part in self.parts if part["type"] == "text")
        self.data: list[Any] = [part["data"] for part in self.parts if part["type"] == "data"]
        self.context: str = message.get("context", "")
        self.session: str | None = message.get("session")
        self.workdir: str = message["workdir"]
        self.out: str = message["out"]
        self.limits: dict[str, Any] = message.get("limits", {})
        self.metadata: dict[str, Any] = message.get("metadata", {})


class Steer:
    """Hold a message that came while the turn was open."""

    __slots__ = ("id", "text")

    def __init__(self, id: str, text: str) -> None:
        self.id = id
        self.text = text


class ToolCall:
    """Stand for an open tool call; as a context manager it always gets a result.

    An exception that leaves the block becomes an error result and goes on its way.
    """

    __slots__ = ("_agent", "_answered", "id", "name")

    def __init__(self, agent: Agent, id: str, name: str) -> None:
        self._agent = agent
        self._answered = False
        self.id = id
        self.name = name

    def result(
        self, content: object, *, is_error: bool = False, exit_code: int | None = None
    ) -> None:
        """Send the result of this call."""
        self._answered = True
        self._agent.tool_result(
            self.id, content, name=self.name, is_error=is_error, exit_code=exit_code
        )

    def __enter__(self) -> ToolCall:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._answered:
            return
        if error is None:
            self.result("")
        else:
            self.result(_described(error), is_error=True)


class Agent:
    """Send events and receive what the runtime says; *stdin* and *stdout* are descriptors."""

    def __init__(self, stdin: int = 0, stdout: int = 1) -> None:
        self._stdin = stdin
        self._stdout = stdout
        self._poll = select.poll()
        self._poll.register(stdin, select.POLLIN)
        self._tail = bytearray()
        self._task: Task | None = None
        self._steers: list[Steer] = []
        self._interrupted = False
        self._at_eof = False
        self._calls = 0
        self._ended = False
        # Keeps lines whole, and the terminal event last, when an author sends from threads.
        self._writing = allocate_lock()
        # Keeps a second thread from blocking in a read that the first one emptied.
        self._reading = allocate_lock()

    # What the runtime says

    def read_task(self) -> Task:
        """Wait for the task.

        Raises: ProtocolError when stdin ends or says something else first.
        """
        while self._task is None:
            if self._at_eof:
                raise ProtocolError("stdin ended before a task came")
            with self._reading:
                self._receive(os.read(self._stdin, 65536))
        return self._task

    def interrupted(self) -> bool:
        """Tell, without waiting, whether the runtime wants this run to stop."""
        self._receive_waiting()
        return self._interrupted

    def checkpoint(self) -> None:
        """Raise `Interrupted` if the runtime wants this run to stop."""
        if self.interrupted():
            raise Interrupted

    def steers(self) -> list[Steer]:
        """Take the steering messages that came since the last call, and say so."""
        self._receive_waiting()
        taken, self._steers = self._steers, []
        if not self._ended:
            for steer in taken:
                self.send("steered", id=steer.id)
        return taken

    # What the agent says

    def session(self, id: str, *, model: str | None = None, auth: str | None = None) -> None:
        """Name the session that a later run in this context may continue."""
        self.send("session", id=id, **_given(model=model, auth=auth))

    def delta(self, text: str) -> None:
        """Stream a piece of the answer."""
        self.send("text-delta", text=text)

    def say(self, text: str, *, answer: str | None = None) -> None:
        """Send a complete text; it replaces what was streamed by `delta`."""
        self.send("text", text=text, **_given(answer=answer))

    def think_delta(self, text: str) -> None:
        """Stream a piece of thinking."""
        self.send("thinking-delta", text=text)

    def think(self, text: str, *, answer: str | None = None) -> None:
        """Send a complete thinking; it replaces what was streamed by `think_delta`."""
        self.send("thinking", text=text, **_given(answer=answer))

    def tool(self, name: str, input: object, *, answer: str | None = None) -> ToolCall:
        """Open a tool call, to be used in a `with` block."""
        return ToolCall(self, self.tool_call(name, input, answer=answer), name)

    def tool_call(self, name: str, input: object, *, answer: str | None = None) -> str:
        """Send a tool call and return its id."""
        with self._writing:
            self._calls += 1
            id = f"call_{self._calls}"
        self.send("tool-call", id=id, name=name, input=input, **_given(answer=answer))
        return id

    def tool_result(
        self,
        id: str,
        content: object,
        *,
        name: str | None = None,
        is_error: bool = False,
        exit_code: int | None = None,
    ) -> None:
        """Send the result of the tool call named *id*."""
        optional = _given(name=name, is_error=is_error or None, exit_code=exit_code)
        self.send("tool-result", id=id, content=content, **optional)

    def usage(
        self,
        model: str,
        *,
        call_id: str | None = None,
        scope: str | None = None,
        **counted: float,
    ) -> None:
        """Report what a model call used; *counted* takes the names in `USAGE_FIELDS`.

        *scope* is `call` (the default) or `total`. What is not known is left out, never 0.
        """
        for field in counted:
            _choose("a usage field", field, USAGE_FIELDS)
        _choose("a usage scope", scope or "call", ("call", "total"))
        self.send("usage", model=model, **counted, **_given(call_id=call_id, scope=scope))

    def retrying(
        self, attempt: int, reason: str, *, max: int | None = None, delay: float | None = None
    ) -> None:
        """Say that a model call failed and is tried again; *delay* in seconds."""
        self.send("retrying", attempt=attempt, reason=reason, **_given(max=max, delay=delay))

    def activity(self, text: str) -> None:
        """Show one live line; it is no part of the answer."""
        self.send("activity", text=text)

    def note(self, text: str) -> None:
        """Leave a line in the run's log."""
        self.send("note", text=text)

    def turn_end(self, result: str, data: object = None) -> None:
        """End the run with its answer, and a JSON value for callers that want structure."""
        self.send("turn-end", result=result, **_given(data=data))

    def turn_failed(self, kind: str, message: str) -> None:
        """End the run without an answer; *kind* is one of `FAILURE_KINDS`.

        `declined` as the very first event refuses the task before any work.
        """
        _choose("a failure kind", kind, FAILURE_KINDS)
        self.send("turn-failed", kind=kind, message=message)

    def send(self, type: str, **fields: object) -> None:
        """Send any event of the protocol.

        Raises: ProtocolError after `turn-end` or `turn-failed`. When nobody reads any more,
        the program ends quietly (`SystemExit`).
        """
        rest = _encoded({"type": type, **fields})
        with self._writing:
            if self._ended:
                raise ProtocolError(f"the turn has ended; {type!r} may not follow it")
            self._ended = type in ("turn-end", "turn-failed")
            try:
                while rest:
                    rest = rest[os.write(self._stdout, rest) :]
            except BrokenPipeError:
                raise SystemExit(1) from None

    @property
    def ended(self) -> bool:
        """Tell whether a terminal event was sent."""
        return self._ended

    # Reading

    def _receive_waiting(self) -> None:
        if not self._reading.acquire(False):
            return
        try:
            while not self._at_eof and self._poll.poll(0):
                self._receive(os.read(self._stdin, 65536))
        finally:
            self._reading.release()

    def _receive(self, chunk: bytes) -> None:
        if not chunk:
            self._at_eof = self._interrupted = True
            return
        unseen = len(self._tail)
        self._tail += chunk
        while (end := self._tail.find(b"\n", unseen)) >= 0:
            line = bytes(self._tail[:end])
            del self._tail[: end + 1]
            unseen = 0
            self._receive_message(line)

    def _receive_message(self, line: bytes) -> None:
        message = _decoded(line)
        kind = message.get("type")
        if self._task is None:
            self._task = _task(message)
        elif kind == "interrupt":
            self._interrupted = True
        elif kind == "steer":
            self._steers.append(Steer(message["id"], message["text"]))


def serve(work: Callable[[Task, Agent], str | None]) -> None:
    """Run *work* on the task: what it returns ends the turn, what it raises fails it."""
    agent = Agent()
    try:
        result = work(agent.read_task(), agent)
    except Interrupted:
        if not agent.ended:
            agent.turn_failed("other", "interrupted")
    except Exception as error:
        if not agent.ended:
            agent.turn_failed("harness-error", _described(error))
        raise
    else:
        if not agent.ended:
            agent.turn_end(result or "")


def _task(message: Mapping[str, Any]) -> Task:
    if message.get("type") != "task":
        raise ProtocolError(f"the first line is of type {message.get('type')!r}; a task is due")
    if message.get("protocol") != PROTOCOL:
        raise ProtocolError(f"the task speaks protocol {message.get('protocol')!r}, not {PROTOCOL}")
    try:
        return Task(message)
    except (KeyError, TypeError) as error:
        raise ProtocolError(f"the task is malformed: {_described(error)}") from error


def _decoded(line: bytes) -> dict[str, Any]:
    try:
        message: dict[str, Any] = json.loads(line)
    except ValueError as error:
        raise ProtocolError(f"the runtime sent a line that is not JSON: {error}") from error
    if not line.lstrip().startswith(b"{"):
        raise ProtocolError("the runtime sent a line that is not a JSON object")
    return message


def _encoded(event: Mapping[str, object]) -> bytes:
    line = json.dumps(event, ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n"
    try:
        return line.encode()
    except UnicodeEncodeError:
        # Names of files that are not UTF-8 hold lone surrogates, which no JSON reader takes.
        return line.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()


def _given(**optional: Any) -> dict[str, Any]:
    return {name: value for name, value in optional.items() if value is not None}


def _choose(what: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{value!r} is not {what}; choose from {', '.join(choices)}")


def _described(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
