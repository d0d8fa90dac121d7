"""What `gemini -o stream-json` writes: deltas, tools, and all that was used in the last line."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from capsule_drivers.acp_errors import kind_of
from capsule_drivers.acp_usage import known
from capsule_drivers.json_lines import read_block
from capsule_runtime import (
    Event,
    Exit,
    FailureKind,
    Note,
    Said,
    Session,
    Text,
    TextDelta,
    ToolCall,
    ToolResult,
    TurnEnd,
    TurnFailed,
    Usage,
)

INTERRUPTED = "interrupted"


class Counts(Struct, frozen=True):
    """What one model used: the cache is in the input, thoughts are in the total alone."""

    total_tokens: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached: int | None = None


class Stats(Struct, frozen=True):
    """What was used by this process."""

    models: dict[str, Counts] = {}


class Problem(Struct, frozen=True):
    """An error."""

    type: str = ""
    message: str = ""


class Line(Struct, frozen=True):
    """One line."""

    type: str = ""
    session_id: str | None = None
    model: str | None = None
    role: str = ""
    content: str = ""
    tool_name: str = ""
    tool_id: str = ""
    parameters: object = None
    status: str = ""
    output: object = None
    error: Problem | None = None
    severity: str = ""
    message: str = ""
    stats: Stats | None = None


_decoder = msgspec.json.Decoder(Line)


class StreamLines:
    """Read the lines of one run."""

    def __init__(self) -> None:
        self._open: dict[str, str] = {}
        self._seen: set[str] = set()
        self._text: list[str] = []
        self._result = ""
        self._model = "google:unknown"
        self._session: str = ""
        self._spoke = self._is_over = False
        self._warning = ""

    def receive(self, lines: bytes) -> list[Said]:
        """Return what complete *lines* stand for."""
        said: list[Said] = []
        for line in read_block(_decoder, lines):
            if self._is_over:
                break
            said += self._heard(line) if isinstance(line, Line) else [line]
        return said

    def close(self, exit: Exit) -> list[Event]:
        """Return what is still to be said of a run that wrote no result."""
        # One that was stopped, with code 0, has perhaps asked the model before its first word.
        is_asking = bool(self._session) and not exit.code
        unknown = [Usage(self._model)] if self._spoke or is_asking else []
        return [*self._whole_text(), *self._closed(), *unknown]

    def _heard(self, line: Line) -> Sequence[Event]:
        match line.type:
            case "init":
                return self._begun(line)
            case "message" if line.role == "assistant" and line.content:
                self._spoke = True
                self._text.append(line.content)
                return [TextDelta(line.content)]
            case "tool_use":
                return self._called(line)
            case "tool_result":
                return self._returned(line)
            case "error":
                self._warning = line.message
                return [Note(f"gemini {line.severity}: {line.message}"[:2000])]
            case "result":
                return self._ended(line)
            case _:
                return ()

    def _begun(self, line: Line) -> Sequence[Event]:
        if not line.session_id or line.session_id == self._session:
            return ()
        self._session = line.session_id
        if line.model:
            self._model = f"google:{line.model}"
        return [Session(line.session_id, line.model)]

    def _called(self, line: Line) -> Sequence[Event]:
        if not line.tool_id or line.tool_id in self._seen:
            return ()
        self._seen.add(line.tool_id)
        self._spoke = True
        self._open[line.tool_id] = line.tool_name
        text = self._whole_text()
        self._result = ""
        return [*text, ToolCall(line.tool_id, line.tool_name, line.parameters)]

    def _returned(self, line: Line) -> Sequence[Event]:
        if (name := self._open.pop(line.tool_id, None)) is None:
            return ()
        failed = True if line.status == "error" else None
        content = line.output
        if content is None and line.error is not None:
            content = line.error.message
        return [ToolResult(line.tool_id, name, content, failed)]

    def _ended(self, line: Line) -> Sequence[Event]:
        self._is_over = True
        before = [*self._whole_text(), *self._closed(), *self._usage(line.stats)]
        if line.status == "success":
            if not self._spoke and self._warning:
                return [*before, TurnFailed(FailureKind.OTHER, self._warning)]
            return [*before, TurnEnd(self._result)]
        words = line.error.message if line.error and line.error.message else "gemini failed"
        return [*before, TurnFailed(kind_of(0, words), words)]

    def _usage(self, stats: Stats | None) -> list[Usage]:
        """Return the sums of all calls. Zeros stand for calls that failed, or were not counted."""
        counts = stats.models if stats is not None else {}
        found = [_usage_of(name, used) for name, used in counts.items() if _is_told(used)]
        return found or ([Usage(self._model)] if self._spoke else [])

    def _whole_text(self) -> list[Event]:
        if not self._text:
            return []
        self._result = "".join(self._text)
        self._text.clear()
        return [Text(self._result)]

    def _closed(self) -> list[Event]:
        left, self._open = self._open, {}
        return [ToolResult(id, name, INTERRUPTED, is_error=True) for id, name in left.items()]


def _is_told(used: Counts) -> bool:
    told = (used.total_tokens, used.input_tokens, used.output_tokens)
    return bool(used.total_tokens) or (used.total_tokens is None and any(told))


def _usage_of(name: str, used: Counts) -> Usage:
    input, cached = known(used.input_tokens), known(used.cached)
    output, all_in = known(used.output_tokens), known(used.total_tokens)
    if all_in is not None and input is not None and all_in >= input:
        thought = None if output is None else all_in - input - output
        output = all_in - input
    else:
        thought, output = None, None  # what the thoughts used is unknown, and is part of it
    return Usage(
        f"google:{name}",
        input_tokens=input if input is None or cached is None else max(input - cached, 0),
        output_tokens=output,
        cache_read_tokens=cached,
        reasoning_tokens=thought if thought is None or thought >= 0 else None,
        scope="total",
    )
