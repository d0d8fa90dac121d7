"""What a run is doing right now, as far as its log tells, in the words of one line."""

from __future__ import annotations

import json
from datetime import datetime
from typing import NamedTuple, cast

from capsule_runtime.cli.lines import GAP, SPACE, Line, Span, words
from capsule_runtime.cli.printer import Shown
from capsule_runtime.core.facts import Fact, Said
from capsule_runtime.core.log import Record
from capsule_runtime.core.money import show_cost, show_told
from capsule_runtime.core.prices import PriceTable, cost_of
from capsule_runtime.core.units import show_duration
from capsule_runtime.events import Activity, Event, Retrying, ToolCall, Usage
from capsule_runtime.frames import ArtifactFrame, Frame, StatusFrame, TextFrame, ThinkingFrame

_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_TURNS_PER_SECOND = 8
_THINKING_TAIL = 60
_ARGUMENT_LIMIT = 400
DOT = Span(Shown(" · "), "dim")


class OpenCall(NamedTuple):
    """A tool call that has no result yet."""

    name: str
    argument: str


class Glance:
    """Follow a run's entries; `status` says at any time what it is at."""

    def __init__(self) -> None:
        self.record = Record()
        self.open_calls: dict[str, OpenCall] = {}
        self.prices: PriceTable | None = None
        """By what the calls are priced, once they are loaded."""
        self._cost: str | None = None
        self._doing = "starting"
        self._thinking = ""

    def apply_frame(self, frame: Frame) -> None:
        """Take the next entry, a frame."""
        self.record.apply_entry(frame)
        match frame:
            case StatusFrame():
                self._doing, self._thinking = "waiting for the model", ""
            case TextFrame():
                self._doing = "writing"
            case ThinkingFrame(text=text):
                self._thinking = (self._thinking + text)[-_THINKING_TAIL:]
                self._doing = f"thinking  {self._thinking}"
            case ArtifactFrame():
                self.open_calls.pop(frame.tool_call_id, None)
                self._doing = "waiting for the model"

    def apply_fact(self, fact: Fact) -> None:
        """Take the next entry, a fact."""
        self.record.apply_entry(fact)
        if isinstance(fact, Said):
            self._apply_event(fact.event)

    def status(self, now: float) -> Line:
        """Return one line on the run; *now* is the wall clock, in seconds."""
        spinner = _SPINNER[int(now * _TURNS_PER_SECOND) % len(_SPINNER)]
        return [words(spinner, "cyan"), SPACE, *self.figures(now), GAP, words(self._activity())]

    def figures(self, now: float) -> Line:
        """Return how long, how many turns and tokens, and what they cost, as far as known."""
        figures: list[Span] = []
        if (created := self.record.created) is not None:
            ended = self.record.ended
            end = seconds_of(ended.at) if ended else now
            figures.append(words(show_duration(max(0.0, end - seconds_of(created.at))), "dim"))
        if turns := self.record.turns:
            figures.append(words(count_of(turns, "turn"), "dim"))
        if calls := self.record.tool_calls:
            figures.append(words(count_of(calls, "tool call"), "dim"))
        if (tokens := self.record.tokens) is not None:
            figures.append(
                words(f"{short_number(tokens)} token{'' if tokens == 1 else 's'}", "dim")
            )
        if (cost := self._shown_cost()) is not None:
            figures.append(words(cost, "dim"))
        told = self.record.told_dollars.sum
        if told.microusd is not None:
            shown = show_told(told.microusd, is_partial=told.is_partial)
            figures.append(words(f"the harness says {shown}", "dim"))
        return [span for figure in figures for span in (DOT, figure)][1:]

    def _shown_cost(self) -> str | None:
        if self._cost is None and self.prices is not None and self.record.usage.calls:
            cost = show_cost(cost_of(self.record.usage.calls, self.prices))
            self._cost = cost if cost != "—" else "cost —"
        return self._cost

    def _activity(self) -> str:
        if self.record.stop is not None:
            return "killing" if self.record.kill_started else "stopping"
        if self.record.terminal is not None:
            return "finishing"
        if not self.open_calls:
            return self._doing
        *others, last = self.open_calls.values()
        beside = f"  (and {len(others)} more)" if others else ""
        return f"{_in_short(last)}{beside}"

    def _apply_event(self, event: Event) -> None:
        match event:
            case ToolCall():
                self.open_calls[event.id] = OpenCall(event.name, first_argument(event.input))
            case Usage():
                self._cost = None
            case Activity(text):
                self._doing = text
            case Retrying():
                self._doing = f"waiting to try again: {event.reason}"
            case _:
                pass


def _in_short(call: OpenCall) -> str:
    """Return *call* as `tool: "first text argument"`, on one line and short."""
    name, argument = (
        " ".join(text.split()) for text in (call.name[:_ARGUMENT_LIMIT], call.argument)
    )
    cut = argument if len(argument) <= _THINKING_TAIL else argument[: _THINKING_TAIL - 1] + "…"
    return f'{name[:_THINKING_TAIL]}: "{cut}"' if cut else name[:_THINKING_TAIL]


def first_argument(value: object) -> str:
    """Return what best says what a tool call is about: its first text."""
    if isinstance(value, dict):
        arguments = list(cast("dict[str, object]", value).values())
        texts = [argument for argument in arguments if isinstance(argument, str)]
        return first_argument([*texts, *arguments][0]) if arguments else ""
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text[:_ARGUMENT_LIMIT]


def seconds_of(at: str) -> float:
    """Return the POSIX time of an instant of the log."""
    return datetime.fromisoformat(at).timestamp()


def count_of(count: int, thing: str) -> str:
    """Return "1 turn", "2 turns"."""
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def short_number(count: int) -> str:
    """Return *count* in at most four characters and a unit: "950", "1.2k", "34k", "1.2M"."""
    for size, unit in ((1_000_000, "M"), (1_000, "k")):
        if count >= size:
            scaled = count / size
            return f"{scaled:.1f}{unit}" if scaled < 10 else f"{scaled:.0f}{unit}"
    return str(count)
