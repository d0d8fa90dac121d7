"""The frames of a run's text, by segment.

A **segment** is the run of events between the start (or the last tool result) and the next tool
result or end. It opens with a `working` status at the first fragment, text, thinking or tool call,
and opening reads the turn counter without advancing it.

Text replaces, it never appends: a client joins `text` frames until one is final. So a segment that
streamed owes one *removal*, an empty final text, from a fragment until the next complete text,
tool result or end; and the words of a complete text are in no frame, because the client has them.
The flags outlive the segment that set them: the end of a turn asks what the last one streamed.
"""

from __future__ import annotations

from capsule_runtime.core.journal import Journal


class Segments:
    """The segment state of one attempt, writing frames into *journal*."""

    def __init__(self, journal: Journal, context: str, removal_owed: bool = False) -> None:
        self._journal = journal
        self._context = context
        self.is_open = False
        self._streamed_text = False
        self._removal_owed = removal_owed
        self._streamed_thinking = False

    def open(self, turn: int) -> None:
        """Open a segment for turn number *turn* if none is open."""
        if self.is_open:
            return
        self._pay_removal()  # an attempt that was cut off may have left one
        self.is_open = True
        self._streamed_text = self._streamed_thinking = False
        self._journal.status("working", f"inference turn {turn}", self._context)

    def text_delta(self, text: str) -> None:
        """Send a fragment; an empty one counts as a fragment too."""
        self._streamed_text = self._removal_owed = True
        self._journal.text(text, False)

    def whole_text(self) -> None:
        """End what was streamed: a complete text replaces it."""
        self._pay_removal()

    def thinking_delta(self, text: str) -> None:
        """Send a fragment of thinking."""
        self._streamed_thinking = True
        self._journal.thinking(text)

    def whole_thinking(self, text: str) -> None:
        """Send a complete thinking, unless the segment streamed it already."""
        if not self._streamed_thinking:
            self._journal.thinking(text)

    def close(self) -> None:
        """Pay what is owed and close: a tool result, or the end of the turn."""
        self._pay_removal()
        self.is_open = False

    def fallback(self, result: str) -> None:
        """Send *result* as the whole answer if the last segment streamed none of it."""
        if result and not self._streamed_text:
            self._journal.text(result, True)

    def _pay_removal(self) -> None:
        if self._removal_owed:
            self._removal_owed = False
            self._journal.text("", True)
