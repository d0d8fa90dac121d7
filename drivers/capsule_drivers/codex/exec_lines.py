"""`codex exec --json`: one prompt, one turn, one event a line. Nothing can be said to it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from capsule_drivers.codex.calls import (
    Baseline,
    Counts,
    Repeats,
    kind_of_words,
    named,
    retry_of,
    usage_of,
)
from capsule_drivers.codex.items import Item, Tools
from capsule_runtime import (
    Event,
    Note,
    Retrying,
    Said,
    Session,
    Text,
    Thinking,
    TurnEnd,
    TurnFailed,
    Usage,
)

_UNHEEDED = frozenset({"item.updated", "turn.started"})
_OURS = frozenset({"error", "todo_list"})
"""Items that no model call need have made."""
_NO_TOOLS = _OURS | {"agent_message", "reasoning"}
_NOTHING: Sequence[Said] = ()


class _Total(Struct, frozen=True, gc=False):
    """What the thread used in all, over all its turns."""

    input_tokens: int = 0
    cached_input_tokens: int = 0
    cache_write_input_tokens: int = 0
    output_tokens: int = 0
    reasoning_output_tokens: int = 0

    def counts(self) -> Counts:
        """Return the same in the words of the app-server."""
        return Counts(*msgspec.structs.astuple(self))


class _Problem(Struct, frozen=True, gc=False):
    message: str = ""


class Line(Struct, frozen=True, gc=False):
    """Any event, by its type."""

    type: str = ""
    thread_id: str = ""
    item: Item = Item()
    usage: _Total | None = None
    error: _Problem = _Problem()
    message: str = ""


_lines: msgspec.json.Decoder[Line] = msgspec.json.Decoder(Line)


class ExecStream:
    """One turn as `exec` tells of it."""

    def __init__(
        self,
        model: str | None = None,
        thread: str | None = None,
        baseline: Baseline | None = None,
    ) -> None:
        """*model* is the one that was asked for, *thread* the one that is resumed.

        *baseline* is what that had used before.
        """
        self.model = named(model)
        self._told_model = model and self.model
        self.last_error = ""
        self.tools = Tools()
        self._thread = thread or ""
        """Known without the line that tells it if it is resumed: that may be lost."""
        self._is_announced = False
        self._is_over = False
        self._result = ""
        self._baseline = baseline
        self._has_spoken = False
        self._repeats = Repeats()

    def heard(self, line: bytes) -> Sequence[Said]:
        """Return what a *line* means.

        Raises:
            msgspec.DecodeError, RecursionError: it cannot be read.
        """
        event = _lines.decode(line)
        match event.type:
            case "item.started":
                return self._started(event.item)
            case "item.completed":
                return self._completed(event.item)
            case "thread.started":
                return self._opened(event.thread_id)
            case "turn.completed" | "turn.failed":
                return self._over(event)
            case "error":
                return self._failed(event.message)
            case type if type in _UNHEEDED:
                return _NOTHING
            case _:
                return [Note(f"an event of a type that is not known: {event.type[:100]}")]

    def cut(self) -> list[Event]:
        """Return what is known of a turn that ended early: that it used something."""
        has_spoken, self._has_spoken = self._has_spoken, False
        return [Usage(self.model)] if has_spoken else []

    def _opened(self, thread: str) -> Sequence[Said]:
        if self._is_announced:
            return _NOTHING
        self._thread, self._is_announced = thread, True
        return [Session(thread, self._told_model)]

    def _over(self, event: Line) -> Sequence[Said]:
        if self._is_over:
            return _NOTHING
        self._is_over = True
        if event.type == "turn.completed":
            return [*self.tools.close(), *self._used(event.usage), TurnEnd(self._result)]
        message = event.error.message or self.last_error
        failed = TurnFailed(kind_of_words(message), message)
        return [*self.cut(), *self.tools.close(), failed]

    def _started(self, item: Item) -> Sequence[Said]:
        if item.type in _NO_TOOLS:
            return _NOTHING
        self._has_spoken = True
        self._repeats.over()  # a retry is told of the tool, and goes on from there
        return self.tools.started(item)

    def _completed(self, item: Item) -> Sequence[Said]:
        self._has_spoken = self._has_spoken or item.type not in _OURS
        match item.type:
            case "agent_message" | "reasoning":
                return self._whole(Text if item.type == "agent_message" else Thinking, item)
            case "error":
                return [Note(item.message)]  # a warning; an error that ends the turn is no item
            case "todo_list":
                return _NOTHING
            case _:
                return self.tools.completed(item)

    def _whole(self, kind: type[Text | Thinking], item: Item) -> Sequence[Said]:
        if self._repeats.is_old(kind, item.id, item.text):
            return _NOTHING
        if kind is Text:
            self._result = item.text
        return self._repeats.whole(kind, item.text, None)

    def _failed(self, message: str) -> Sequence[Said]:
        retry = retry_of(message)
        if retry is None:
            self.last_error = message  # the end of the turn says it again
            return _NOTHING
        number, most = retry
        _, _, reason = message.partition("(")
        said = self._repeats.retried(number)
        reason = reason.removesuffix(")") or message
        return [*said, Retrying(self._repeats.retries, reason, most)]

    def _used(self, told: _Total | None) -> Sequence[Said]:
        """Return what this turn used: the thread's total beyond what it was before."""
        if told is None:
            return [Usage(self.model)]
        total, before = told.counts(), self._baseline
        known = before is not None and before.thread == self._thread
        used = total.beyond(before.total) if before and known else total
        # Not everybody who answers says what it took, and then Codex counts nothing.
        is_told = used.is_possible and (used != Counts() or not self._has_spoken)
        said: list[Said] = [usage_of(used, self.model) if is_told else Usage(self.model)]
        return [*said, Baseline(self._thread, total).kept()] if self._thread else said
