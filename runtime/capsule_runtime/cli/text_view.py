"""The view for people: the answer, one row for each tool call, and how it ended."""

from __future__ import annotations

import time

from capsule_runtime.cli.answers import Answer
from capsule_runtime.cli.glance import DOT, Glance, OpenCall
from capsule_runtime.cli.lines import GAP, SPACE, Line, paragraph, words
from capsule_runtime.cli.screen import Screen
from capsule_runtime.cli.views import ending_of
from capsule_runtime.cli.warnings import closing_lines
from capsule_runtime.core.chain import Row
from capsule_runtime.core.containment import in_one_line
from capsule_runtime.core.facts import (
    AttemptStarted,
    Contained,
    Created,
    Fact,
    Noted,
    PermissionDecided,
    Said,
    SteerAsked,
    StopAsked,
)
from capsule_runtime.core.ledger import Spend
from capsule_runtime.core.log import Record, decode_entries
from capsule_runtime.core.network_facts import Egress
from capsule_runtime.core.outcome import OUTCOME_OF, Outcome
from capsule_runtime.core.units import show_duration
from capsule_runtime.events import Retrying, Text, ToolCall, Usage
from capsule_runtime.frames import ArtifactFrame, Frame, TextFrame
from capsule_runtime.settings import price_book

_NOTES_SHOWN = 5


class TextView:
    """Show a run to a person."""

    def __init__(self, screen: Screen, answer: Answer) -> None:
        self._screen = screen
        self._answer = answer
        self._glance = Glance()
        self._notes = 0

    async def show(self, row: Row) -> None:
        for entry in decode_entries(row.body):
            if isinstance(entry, Frame):
                await self._show_frame(entry)
            else:
                await self._show_fact(entry)
        await self._answer.flush()
        self.tick()

    def notice(self, text: str) -> None:
        self._screen.notice([paragraph(text, "yellow")])

    def tick(self) -> None:
        record = self._glance.record
        if record.created is not None and record.ended is None:
            self._screen.status(self._glance.status(time.time()))

    async def ended(self, record: Record) -> None:
        await self._answer.finish(record.final.response if record.final else None)
        for call in self._glance.open_calls.values():
            await self._screen.entry(_call(call), _remark("✗", "red", "no result"))
        for line in closing_lines(record):
            style = "yellow" if line.startswith("warning") else "dim"
            await self._screen.whole([paragraph(line, style)])
        figures = self._glance.figures(time.time())
        await self._screen.whole([*ending_of(record), GAP, *_why(record), *figures])
        if record.outcome is Outcome.FAILED and record.created is not None:
            await self._screen.whole([words(f"hint: capsule show {record.created.run}", "dim")])

    async def _show_frame(self, frame: Frame) -> None:
        match frame:
            case TextFrame():
                await self._answer.take(frame)
            case ArtifactFrame():
                await self._answer.close()
                await self._show_artifact(frame)
            case _:
                pass
        self._glance.apply_frame(frame)

    async def _show_artifact(self, frame: ArtifactFrame) -> None:
        call = self._glance.open_calls.get(frame.tool_call_id, OpenCall(frame.tool_name, ""))
        took = "" if frame.duration_ms is None else show_duration(frame.duration_ms / 1000)
        code = f"exit {frame.exit_code}" if frame.exit_code else ""
        mark, style = ("✗", "red") if frame.is_error or code else ("✓", "green")
        await self._screen.entry(_call(call), _remark(mark, style, f"{took}  {code}"))
        if frame.is_error:
            await self._screen.entry([GAP, words(_first_line(frame.content), "red")])

    async def _show_fact(self, fact: Fact) -> None:
        self._glance.apply_fact(fact)
        match fact:
            case Created():
                await self._screen.entry(_header(fact))
            case AttemptStarted():
                await self._answer.close()
                await self._show_attempt(fact)
            case Contained(containment=containment):
                text = f"containment: {in_one_line(containment)}"
                await self._screen.entry([words(text, "dim")])
            case Said(event=Text(text=text)):
                await self._answer.take_whole(text)
            case Said(event=ToolCall()):
                await self._answer.pause()
            case Said(event=Usage()) if self._glance.prices is None:
                self._glance.prices = await price_book().table()
            case Said(event=Retrying() as event):
                await self._answer.pause()
                await self._screen.entry([words("↻", "yellow"), SPACE, words(_retry(event), "dim")])
            case PermissionDecided(tool=tool, allowed=allowed):
                await self._answer.pause()
                await self._screen.entry(_permission(tool, allowed))
            case SteerAsked(text=text, refused=None):
                await self._answer.pause()
                await self._screen.entry([words("»", "yellow"), SPACE, words(text, "dim")])
            case StopAsked(reason=reason):
                # The whole sentence comes with the end.
                if OUTCOME_OF[reason] is not Outcome.CANCELED:
                    await self._screen.entry(
                        [words("■", "yellow"), SPACE, words(f"stopping: {reason}")]
                    )
            case Noted(text=text):
                await self._show_note(text)
            case Egress(refused=str(why), message=message):
                await self._show_note(f"network: refused ({why}): {message}")
            case _:
                pass

    async def _show_attempt(self, fact: AttemptStarted) -> None:
        if fact.attempt > 1:
            await self._screen.entry([words(f"attempt {fact.attempt}", "dim")])
        if fact.spend is not None:
            await self._screen.entry([words(_spend(fact, fact.spend), "dim")])

    async def _show_note(self, text: str) -> None:
        self._notes += 1
        if self._notes <= _NOTES_SHOWN:
            await self._screen.entry([words("note:", "dim"), SPACE, words(text, "dim")])
        elif self._notes == _NOTES_SHOWN + 1:
            run = self._glance.record.created.run if self._glance.record.created else "RUN"
            await self._screen.entry([words(f"more notes: capsule logs --facts {run}", "dim")])


def _header(fact: Created) -> Line:
    manifest = fact.manifest
    return [
        words(fact.run, "bold"),
        GAP,
        words(f"{manifest.name} {manifest.version}"),
        GAP,
        words(f"driver {manifest.harness.driver}", "dim"),
    ]


def _spend(fact: AttemptStarted, known: Spend) -> str:
    """Return when spending is known, and what bounds it."""
    run = fact.ceilings.shown if fact.ceilings else ""
    day = f"all runs of the day: {fact.day.shown}" if fact.day else ""
    bounds = "; ".join(filter(None, (run, day)))
    terms = f"at most {bounds}" if bounds else "no ceilings"
    return f"spend: {known}, by what the {fact.ledger} reports; {terms}"


def _why(record: Record) -> Line:
    """Return the reason, in the word that programs get, if there is more to say than "completed"."""
    if record.ended is None or record.outcome is Outcome.COMPLETED:
        return []
    return [words(record.ended.reason, "dim"), DOT]


def _call(call: OpenCall) -> Line:
    argument = [GAP, words(call.argument)] if call.argument else []
    return [words("●", "cyan"), SPACE, words(call.name, "bold"), *argument]


def _permission(tool: str, allowed: bool) -> Line:
    mark, style = ("✓", "green") if allowed else ("✗", "yellow")
    words_of = f"asked to use {tool}: {'allowed' if allowed else 'denied'}"
    return [words(mark, style), SPACE, words(words_of, "dim")]


def _remark(mark: str, style: str, text: str) -> Line:
    return [GAP, words(mark, style), SPACE, words(text, "dim")]


def _retry(event: Retrying) -> str:
    of = f" of {event.max}" if event.max else ""
    delay = f" in {show_duration(event.delay)}" if event.delay else ""
    return f"try {event.attempt}{of}{delay}: {event.reason}"


def _first_line(content: object) -> str:
    text = content if isinstance(content, str) else repr(content)
    return next((line for line in text.splitlines() if line.strip()), "")
