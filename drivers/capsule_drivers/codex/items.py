"""The items of a turn, in both dialects of Codex, and the tool calls among them.

The app-server writes `commandExecution` and `exitCode`, `exec --json` writes `command_execution`
and `exit_code`; both are read by one struct, which takes either name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from msgspec import Struct

from capsule_drivers.json_text import passed_on
from capsule_runtime import Event, ToolCall, ToolResult

_CUT_OFF = "interrupted: the turn ended before the tool did"
_FAILED = frozenset({"failed", "declined", "interrupted"})


class Item(Struct, frozen=True, gc=False):
    """An item of a turn, of whatever type; a field that its type has not is at its default."""

    id: str = ""
    type: str = ""
    text: str = ""
    message: str = ""
    summary: object = None
    content: object = None
    clientId: str | None = None
    status: str | None = None
    command: str | None = None
    cwd: str | None = None
    aggregatedOutput: str | None = None
    aggregated_output: str | None = None
    exitCode: int | None = None
    exit_code: int | None = None
    changes: object = None
    server: str | None = None
    tool: object = None
    name: object = None
    arguments: object = None
    result: object = None
    output: object = None
    error: object = None
    query: str | None = None
    action: object = None
    path: str | None = None
    prompt: str | None = None


class Tools:
    """The tool calls of one attempt, each told of once, each closed once."""

    def __init__(self) -> None:
        self._open: dict[str, str] = {}
        self._closed: set[str] = set()
        self._changes: dict[str, object] = {}
        """What the open calls are to change."""

    def started(self, item: Item, answer: str | None = None) -> list[Event]:
        """Return the call that *item* is, unless it was told of."""
        if item.id in self._open or item.id in self._closed:
            return []
        name = _name_of(item)
        self._open[item.id] = name
        if item.changes is not None:
            self._changes[item.id] = passed_on(item.changes)
        return [ToolCall(item.id, name, passed_on(_input_of(item)), answer)]

    def completed(self, item: Item, answer: str | None = None) -> list[Event]:
        """Return the result that *item* is, and the call itself if nobody told of it."""
        if item.id in self._closed:
            return []
        said = self.started(item, answer)
        name = self._open.pop(item.id)
        self._changes.pop(item.id, None)
        self._closed.add(item.id)
        content, exit_code = passed_on(_content_of(item)), item.exitCode
        if exit_code is None:
            exit_code = item.exit_code
        failed = item.status in _FAILED
        return [*said, ToolResult(item.id, name, content, failed, exit_code)]

    def changes_of(self, id: str) -> dict[str, object]:
        """Return what the open call *id* is to change, as far as it told."""
        return {"changes": self._changes[id]} if id in self._changes else {}

    def close(self) -> list[Event]:
        """Return results for the calls that will get none."""
        said = [ToolResult(id, name, _CUT_OFF, True) for id, name in self._open.items()]
        self._closed.update(self._open)
        self._open.clear()
        return list[Event](said)


def _name_of(item: Item) -> str:
    match item.type:
        case "commandExecution" | "command_execution":
            return "shell"
        case "fileChange" | "file_change":
            return "apply_patch"
        case "mcpToolCall" | "mcp_tool_call":
            return f"{item.server}.{item.tool}"
        case _:
            told = (item.tool, item.name, item.type)
            return next(name for name in told if isinstance(name, str))


def _input_of(item: Item) -> object:
    """Return what the tool was given, without what was not said."""
    if item.arguments is not None:
        return item.arguments
    names = ("command", "cwd", "changes", "query", "path", "prompt")
    given: dict[str, object] = {name: getattr(item, name) for name in names}
    return {name: value for name, value in given.items() if value is not None}


def _content_of(item: Item) -> object:
    if item.command is not None:
        said = item.aggregatedOutput or item.aggregated_output
        return said or ("declined" if item.status == "declined" else "")
    told = (item.error, item.result, item.output, item.action, item.status)
    return next((value for value in told if value is not None), None)


def paragraphs(parts: object) -> str:
    """Return the texts among *parts* as one."""
    if not isinstance(parts, list):
        return ""
    return "\n\n".join(part for part in cast("Sequence[object]", parts) if isinstance(part, str))
