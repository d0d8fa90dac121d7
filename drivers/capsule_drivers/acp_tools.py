"""The tool calls of an ACP agent: told in pieces, out of order, and sometimes never ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from capsule_drivers.acp_wire import Update
from capsule_runtime import Event, ToolCall, ToolResult

INTERRUPTED = "interrupted"
_ENDED = ("completed", "failed")


@dataclass(slots=True)
class _Call:
    """What was told of one call so far."""

    name: str
    title: str = ""
    input: object = None
    locations: object = None
    content: object = None


class Tools:
    """Turn the pieces of tool calls into one `ToolCall` and one `ToolResult` each."""

    def __init__(self) -> None:
        self._open: dict[str, _Call] = {}
        self._untold: dict[str, _Call] = {}
        self._ended: set[str] = set()

    def heard(self, update: Update) -> list[Event]:
        """Return what *update* of a call makes known."""
        id = update.tool_call_id
        if not id or id in self._ended:
            return []
        is_first = id not in self._open
        call = self._merge(id, update)
        # One agent first tells the folder alone, another nothing: the words come a line later.
        is_pending = update.status in (None, "pending")
        if is_first and is_pending and not _says_much(update.raw_input):
            return []
        events = self._tell(id, call)
        if update.status in _ENDED:
            events.append(self._end(id, call, update))
        return events

    def is_new(self, id: str | None) -> bool:
        """Whether nothing was heard of the call *id* yet."""
        return bool(id) and id not in self._open and id not in self._ended

    def skip(self, id: str | None) -> None:
        """Say nothing of the call *id*, which is of the past."""
        if id:
            self._ended.add(id)

    def tell_all(self) -> list[Event]:
        """Return the calls that were not told yet: nothing more will be said of them before."""
        untold, self._untold = self._untold, {}
        return [ToolCall(id, call.name, _input_of(call)) for id, call in untold.items()]

    def close_all(self) -> list[Event]:
        """End every open call: the agent will not."""
        events = self.tell_all()
        for id, call in self._open.items():
            events.append(ToolResult(id, call.name, INTERRUPTED, is_error=True))
        self._ended |= self._open.keys()
        self._open.clear()
        return events

    def known(self, update: Update) -> tuple[str, object]:
        """Return name and input of the call that *update* is of, as far as both are known."""
        id = update.tool_call_id or ""
        call = self._open.get(id)
        return (
            (_name_of(id, update), update.raw_input)
            if call is None
            else (call.name, _input_of(call))
        )

    def _merge(self, id: str, update: Update) -> _Call:
        call = self._open.get(id)
        if call is None:
            call = self._open[id] = self._untold[id] = _Call(_name_of(id, update))
        call.title = update.title or call.title
        if _says_much(update.raw_input) or call.input is None:
            call.input = update.raw_input
        call.locations = update.locations or call.locations
        call.content = update.content or call.content
        return call

    def _tell(self, id: str, call: _Call) -> list[Event]:
        if self._untold.pop(id, None) is None:
            return []
        return [ToolCall(id, call.name, _input_of(call))]

    def _end(self, id: str, call: _Call, update: Update) -> ToolResult:
        del self._open[id]
        self._ended.add(id)
        failed = True if update.status == "failed" else None
        last = call.content if update.content is None else update.content
        content = _content_of(last, update.raw_output)
        return ToolResult(id, call.name, content, failed, _exit_code(update.raw_output))


def _says_much(raw_input: object) -> bool:
    """Whether *raw_input* is more than the folder that the tool works in."""
    return bool(raw_input) and not (isinstance(raw_input, dict) and raw_input.keys() <= {"cwd"})


def _name_of(id: str, update: Update) -> str:
    meta = update.meta.claude_code if update.meta else None
    if meta is not None and meta.tool_name:
        return meta.tool_name
    if update.meta is not None and isinstance(update.meta.tool_name, str):
        return update.meta.tool_name or "tool"
    name, parted, _ = id.partition("__")
    if parted and name:
        return name  # gemini's ids begin with the name of the tool
    title = update.title or ""
    if title and " " not in title and title.isprintable():
        return title
    return update.kind or "tool"


def _input_of(call: _Call) -> object:
    if call.input:
        return call.input
    told = {"title": call.title, "locations": call.locations}
    return {name: value for name, value in told.items() if value}


def _content_of(content: object, raw_output: object) -> object:
    """Return the words of *content* if it is words alone, else all of it; else *raw_output*."""
    if not isinstance(content, list) or not content:
        return "" if raw_output is None else raw_output
    blocks = cast("list[object]", content)
    words = [_words_of(block) for block in blocks]
    texts = [text for text in words if text is not None]
    return "".join(texts) if len(texts) == len(words) else blocks


def _words_of(block: object) -> str | None:
    inner: object = cast("dict[str, object]", block).get("content") if _is_map(block) else None
    text = cast("dict[str, object]", inner).get("text") if _is_map(inner) else None
    return text if isinstance(text, str) else None


def _exit_code(raw_output: object) -> int | None:
    output = cast("dict[str, object]", raw_output) if _is_map(raw_output) else {}
    meta = output.get("metadata")
    code = cast("dict[str, object]", meta).get("exit") if _is_map(meta) else output.get("exitCode")
    return code if isinstance(code, int) and not isinstance(code, bool) else None


def _is_map(value: object) -> bool:
    return isinstance(value, dict)
