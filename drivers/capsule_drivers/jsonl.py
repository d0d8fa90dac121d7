"""The native protocol: one JSON object a line, both ways. See drivers/README.md."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal, assert_never, cast

import msgspec
from msgspec import Struct

from capsule_drivers.exits import failure_of
from capsule_drivers.json_text import DEPTH, NOTE_BYTES, decoded, is_deep, unread
from capsule_runtime import (
    Ack,
    Answer,
    Decision,
    Description,
    Dispatch,
    Event,
    Exit,
    HarnessError,
    LaunchPlan,
    LaunchRequest,
    Message,
    Note,
    Permission,
    Refused,
    Said,
    Send,
    Suspend,
    TextDelta,
    ThinkingDelta,
    ToolCall,
    ToolResult,
    TurnEnd,
    TurnFailed,
    Usage,
)

PROTOCOL = 1
_USAGE = re.compile(rb'"type"\s*:\s*"usage"')
_SIGNALS = {"line": None, "int": 2, "term": 15}

_ENDS = frozenset({TurnEnd, TurnFailed})

_events = msgspec.json.Decoder(Event)
_lines = msgspec.json.Encoder()
_OPEN_VALUE: dict[type[Struct], str] = {
    ToolCall: "input",
    ToolResult: "content",
    TurnEnd: "data",
    Permission: "input",
    Dispatch: "input",
    Suspend: "input_schema",
}
"""The one field of an event that may be any JSON value."""


class JsonlConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """`[harness.config]` of a native harness."""

    interrupt: Literal["line", "int", "term"] = "line"
    """How it is asked to stop: by a line on stdin, or by SIGINT or SIGTERM beside the line."""


class Task(Struct, frozen=True, tag_field="type", tag="task", omit_defaults=True):
    """The first line a harness reads."""

    protocol: int
    run: str
    message: Message
    context: str
    workdir: str
    out: str
    limits: Mapping[str, float]
    metadata: Mapping[str, str]
    session: str | None = None


class JsonlDriver:
    """Drive a harness that speaks our own events."""

    Config: ClassVar[type[Struct]] = JsonlConfig

    def __init__(self) -> None:
        self._config = JsonlConfig()
        self._half: TextDelta | ThinkingDelta | None = None
        """The first half of a character that a harness cut in two, and where it belongs."""
        self._is_over = False

    def describe(self) -> Description:
        return Description(
            harness="native",
            interrupt_signal=_SIGNALS[self._config.interrupt],
            streams_text=True,
            usage="per-call",
            resumes=True,
            steers=True,
            asks_permission=True,
        )

    def launch(self, request: LaunchRequest) -> LaunchPlan:
        if not request.command:
            raise HarnessError(
                "E-HAR-003",
                "the manifest names no command, and the jsonl driver has none of its own",
                'Write command = ["python3", "./agent.py"] under [harness].',
            )
        assert isinstance(request.config, JsonlConfig)
        self._config = request.config
        return LaunchPlan(
            argv=(*request.command, *request.args),
            env={"PYTHONPATH": request.agent_path},
            stdin=_line(_task(request)),
            keep_stdin=True,
        )

    def receive(self, lines: bytes) -> Sequence[Said]:
        said = self._heard(lines)
        return said if _ENDS.isdisjoint(map(type, said)) else [*map(self._ended_once, said)]

    def _heard(self, lines: bytes) -> Sequence[Event]:
        if self._half is None and (events := _read_block(lines)) is not None:
            return events
        return [event for line in lines.split(b"\n") if line.strip() for event in self._one(line)]

    def interrupt(self) -> Send | None:
        return Send(b'{"type":"interrupt"}\n')

    def steer(self, id: str, text: str) -> Send | None:
        return Send(_line({"type": "steer", "id": id, "text": text}))

    def answer(self, id: str, decision: Decision) -> Send | None:
        match decision:
            case Ack(job):
                return Send(_line({"type": "ack", "id": id, "job": job}))
            case Answer(input):
                return Send(_line({"type": "answer", "id": id, "input": input}))
            case Refused(code, message):
                return Send(_line({"type": "refused", "id": id, "code": code, "message": message}))
            case _:
                assert_never(decision)

    def ended(self, exit: Exit) -> Sequence[Event]:
        return [*self._unpaired(), failure_of(exit)]

    def _one(self, line: bytes) -> Sequence[Event]:
        """Read one line that needs care: it is broken, or a character was cut in two."""
        try:
            event = _read_line(line)
        except (ValueError, RecursionError, msgspec.DecodeError) as exc:
            return [unread(line, exc), *_unread_usage(line)]
        if isinstance(event, (TextDelta, ThinkingDelta)):
            return self._joined(event)
        return [*self._unpaired(), event]

    def _joined(self, delta: TextDelta | ThinkingDelta) -> Sequence[Event]:
        """Put the half that waits before *delta*, and let one at its end wait for the next."""
        if self._half is None and delta.text.isascii():
            return [delta]
        kind, text, stray = type(delta), delta.text, list[Event]()
        if isinstance(self._half, kind):
            text, self._half = self._half.text + text, None
        else:
            stray.extend(self._unpaired())
        if text and "\ud800" <= text[-1] <= "\udbff":
            text, self._half = text[:-1], kind(text[-1])
        return [*stray, kind(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))]

    def _ended_once(self, event: Event) -> Event:
        """Return *event*, or a note of one that ends a turn which is over."""
        if not isinstance(event, TurnEnd | TurnFailed):
            return event
        was_over, self._is_over = self._is_over, True
        shown = _lines.encode(event)[:NOTE_BYTES].decode("utf-8", "replace")
        return Note(f"the turn was over, and is ended again: {shown}") if was_over else event

    def _unpaired(self) -> Sequence[Event]:
        """Return the half that found no partner, as the character that stands for such."""
        half, self._half = self._half, None
        return () if half is None else [type(half)("\ufffd")]


def _read_block(lines: bytes) -> list[Event] | None:
    """Return the events of *lines* if each line is one; None when a line needs care."""
    try:
        events = _events.decode_lines(lines)
    except (msgspec.DecodeError, RecursionError):
        return None
    # decode_lines sees values, not lines: a value on two, or two on one, must not pass. Between
    # two lines that hold one object each stands "}\n{", and inside an object it cannot.
    if not len(events) == lines.count(b"\n") == lines.count(b"}\n{") + 1:
        return None
    if any(_is_deep(event) for event in events if type(event) in _OPEN_VALUE):
        return None
    return events


def _read_line(line: bytes) -> Event:
    """Return the event of *line*. A delta keeps its halves of characters; others have U+FFFD.

    Raises:
        ValueError, RecursionError, msgspec.DecodeError: *line* is no event.
    """
    event: Event = decoded(line, _events.decode)
    if isinstance(event, (TextDelta, ThinkingDelta)) and "\ufffd" in event.text:
        return type(event)(json.loads(line)["text"])
    if _is_deep(event):
        raise ValueError(f"it nests deeper than {DEPTH} levels")
    return event


def _unread_usage(line: bytes) -> Sequence[Event]:
    """Return a report without numbers for a *line* that was to be one: unknown is not free."""
    try:
        raw: object = json.loads(line)
    except (ValueError, RecursionError):  # it was cut short, perhaps
        return [Usage("unknown:unknown")] if _USAGE.search(line) else ()
    if not isinstance(raw, dict):
        return ()
    said = cast("dict[str, object]", raw)
    if said.get("type") != "usage":
        return ()
    model = said.get("model")
    return [Usage(model if isinstance(model, str) and model else "unknown:unknown")]


def _is_deep(event: Event) -> bool:
    """Whether *event* holds a value that nests too deep to be passed on."""
    name = _OPEN_VALUE.get(type(event))
    return name is not None and is_deep(getattr(event, name))


def _task(request: LaunchRequest) -> Task:
    given = {"model": request.model, "system_prompt": request.system_prompt}
    return Task(
        protocol=PROTOCOL,
        run=request.run,
        message=request.message,
        context=request.context,
        workdir=request.workdir,
        out=request.out,
        limits=request.limits,
        metadata={name: value for name, value in given.items() if value},
        session=request.session,
    )


def _line(value: object) -> bytes:
    return _lines.encode(value) + b"\n"
