"""The tools that pi uses: each call is told once, and so is what it gave."""

from __future__ import annotations

from collections.abc import Sequence

from capsule_drivers.json_text import passed_on
from capsule_drivers.pi_lines import ToolEnd, ToolStart, shown_result
from capsule_runtime import ToolCall, ToolResult


class ToolsInUse:
    """Keep which tools were called. A call of a new answer may have an id that was used before."""

    def __init__(self) -> None:
        self._open: dict[str, str] = {}
        """Calls that gave nothing yet: id to the tool's name."""
        self._closed: set[str] = set()

    def called(self, id: str, name: str, input: object, answer: str | None) -> ToolCall:
        """Return the call that an answer holds."""
        self._open[id] = name
        self._closed.discard(id)
        return ToolCall(id, name, passed_on(input), answer)

    def started(self, start: ToolStart) -> Sequence[ToolCall]:
        """Return the call of a tool that starts, if no answer held it."""
        id = start.tool_call_id
        if id in self._open or id in self._closed:
            return ()
        return [self.called(id, start.tool_name, start.args, None)]

    def gave(self, end: ToolEnd) -> Sequence[ToolResult]:
        """Return what a tool gave, if it is not told for the second time."""
        id = end.tool_call_id
        if id in self._closed:
            return ()
        self._open.pop(id, None)
        self._closed.add(id)
        content = passed_on(shown_result(end.result))
        return [ToolResult(id, end.tool_name, content, end.is_error)]

    def cut_off(self) -> Sequence[ToolResult]:
        """Close the calls that are open: nothing more comes of them."""
        cut = [ToolResult(id, name, "interrupted", True) for id, name in self._open.items()]
        self._closed.update(self._open)
        self._open.clear()
        return cut
