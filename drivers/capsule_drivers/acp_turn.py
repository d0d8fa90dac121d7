"""What an ACP agent says while it answers: words, thoughts, tool calls."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from capsule_drivers.acp_tools import Tools
from capsule_drivers.acp_usage import Told, counted
from capsule_drivers.acp_wire import Content, PromptUsage, Update
from capsule_runtime import (
    Event,
    Steered,
    Text,
    TextDelta,
    ThinkingDelta,
    ToolCall,
    ToolResult,
    Usage,
)

_NOT_TEXT = "[MODE_UPDATE]"
"""Gemini says a change of mode as if the model had."""
_TOOL_UPDATES = ("tool_call", "tool_call_update")


class Speech:
    """Turn the updates of a session into events."""

    def __init__(self, told: Told, *, injects: bool) -> None:
        """An agent that *injects* words into a turn names each answer of the model, too."""
        self.result = ""
        """The words since the last tool call: at the end of the turn, its result."""
        self.answer: str | None = None
        """The model answer that speaks."""
        self.handed: dict[str, str | None] = {}
        """Steers that a prompt holds, and the model answer at the time."""
        self.tools = Tools()
        self._told, self._injects = told, injects
        self._text: list[str] = []
        self._is_new_round = True
        self._used: object = None
        """What was told last of a call; gone once the agent speaks again."""
        self._answers: set[str] = set()
        """The names of what the model has begun to say, if the agent names each part."""

    @property
    def awaits_model(self) -> bool:
        """Whether the next to speak is the model: at the beginning, and when a tool is done."""
        return self._is_new_round

    def ended(self) -> list[Event]:
        """Return what is still to be said of a turn that is over."""
        self._is_new_round = True
        return [*self._whole_text(), *self.tools.close_all()]

    def heard(self, update: Update, *, is_past: bool = False) -> Sequence[Event]:
        """Return the events of *update*; of what *is_past* none, also if it comes again."""
        if is_past:
            self.tools.skip(update.tool_call_id)
            return ()
        events = self._said(update)
        if update.meta is None or update.meta.usage is None:
            return events
        return [*events, *self._counted(update.meta.usage)]

    def _said(self, update: Update) -> Sequence[Event]:
        kind = update.session_update
        if kind in _TOOL_UPDATES:
            return self._tool_spoke(update)
        if kind == "usage_update" and update.cost is not None and update.cost.currency == "USD":
            self._told.cost = update.cost.amount
        words = update.content.text if isinstance(update.content, Content) else ""
        if not words or words.startswith(_NOT_TEXT):
            return ()
        if kind == "agent_message_chunk":
            return self._spoke(words, update.message_id)
        if kind == "agent_thought_chunk":
            self._begin_round(update.message_id)
            return [*self._took(None), *self.tools.tell_all(), ThinkingDelta(words)]
        return ()

    def _counted(self, usage: object) -> Sequence[Event]:
        """Return what a call of the model used, by a line that may come twice."""
        if usage == self._used:
            return ()
        self._used = usage
        self._told.rounds = max(self._told.rounds - 1, 0)
        call_id = self._told.call_id()
        try:
            used = msgspec.convert(usage, PromptUsage)
        except msgspec.ValidationError:
            return [Usage(self._told.model, call_id=call_id)]
        return [counted(used, self._told.model, call_id)]

    def _spoke(self, words: str, answer: str | None) -> list[Event]:
        self._begin_round(answer)
        before = [*self._took(answer), *self.tools.tell_all()]
        if answer != self.answer:
            before += self._whole_text()
        self.answer = answer
        self._text.append(words)
        return [*before, TextDelta(words)]

    def _tool_spoke(self, update: Update) -> list[Event]:
        self._used = None
        if self.tools.is_new(update.tool_call_id):
            self._begin_round(None)
        events = self.tools.heard(update)
        if any(isinstance(event, ToolResult) for event in events):
            self._is_new_round = True
        return self.behind_text(events)

    def behind_text(self, events: list[Event]) -> list[Event]:
        """Return *events* of tools, behind the words that were streamed before them."""
        if not events:
            return events
        text = self._whole_text()
        if any(isinstance(event, ToolCall) for event in events):
            self.result = ""
        return [*self._took(None), *text, *events]

    def _whole_text(self) -> list[Event]:
        if not self._text:
            return []
        self.result = "".join(self._text)
        self._text.clear()
        return [Text(self.result, self.answer)]

    def _begin_round(self, name: str | None) -> None:
        """Take it that the model speaks, in a part of its answer that has a *name* or none."""
        self._used = None
        if self._injects and name is not None:
            if name in self._answers:
                return  # a line that comes again behind its answer begins no other
            self._answers.add(name)
        self._told.rounds += self._is_new_round
        self._is_new_round = False

    def _took(self, answer: str | None) -> list[Event]:
        """Return the steers that the agent has by what it says now, in model answer *answer*."""
        if not self.handed:
            return []
        # Words put into a turn at work are in the next answer, not in what is still streamed.
        taken = [
            id for id, at in self.handed.items() if not self._injects or answer not in (None, at)
        ]
        for id in taken:
            del self.handed[id]
        return [Steered(id) for id in taken]
