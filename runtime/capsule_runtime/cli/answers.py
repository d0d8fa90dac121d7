"""How the agent's words reach stdout: as they come, or the final answer in one piece.

Text replaces, it never appends: a complete text is news only if it was not streamed before.
"""

from __future__ import annotations

from typing import Protocol

from capsule_runtime.cli.lines import paragraph
from capsule_runtime.cli.printer import Printer, shown
from capsule_runtime.cli.screen import Screen
from capsule_runtime.frames import TextFrame

_NARRATION_LIMIT = 256 * 1024
"""Characters kept of what is said between tool calls, where it cannot be streamed."""


class Answer(Protocol):
    """What becomes of the agent's words."""

    async def take(self, frame: TextFrame) -> None:
        """Take a text frame: a fragment, the end of fragments, or the whole answer."""
        ...

    async def take_whole(self, text: str) -> None:
        """Take a complete text. Its fragments, if there were any, came before."""
        ...

    async def flush(self) -> None:
        """Show the fragments that were taken so far."""
        ...

    async def pause(self) -> None:
        """End the row: something else is shown now. The words may go on."""
        ...

    async def close(self) -> None:
        """End this stretch of words: what comes next is another one."""
        ...

    async def finish(self, response: str | None) -> None:
        """Show what is still due; *response* is the answer of a run that completed."""
        ...


class StreamedAnswer:
    """Write what the agent says as it says it."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._printer = Printer()
        self._pending: list[str] = []
        self._is_streaming = False
        self._last_whole = ""

    async def take(self, frame: TextFrame) -> None:
        if not frame.final:
            self._is_streaming = True
            self._pending.append(frame.text)
            return
        if frame.text.strip() != self._last_whole:
            self._pending.append(frame.text)
        await self.close()

    async def take_whole(self, text: str) -> None:
        if not self._is_streaming:
            self._pending.append(text)
        self._last_whole = text.strip()
        await self.close()

    async def flush(self) -> None:
        pending, self._pending = self._pending, []
        if pending:
            await self._screen.answer(self._printer.feed("".join(pending)))

    async def pause(self) -> None:
        await self.flush()
        await self._screen.answer(self._printer.close())
        await self._screen.end_answer_row()
        self._printer = Printer()

    async def close(self) -> None:
        await self.pause()
        self._is_streaming = False

    async def finish(self, response: str | None) -> None:
        # The answer is on the screen already: it came as fragments, or as one final text.
        await self.close()


class HeldAnswer:
    """Hold what the agent says until it shows whether it is the answer.

    The answer goes to stdout. What turns out not to be goes to stderr.
    """

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._held: list[str] = []
        self._held_length = 0
        self._is_streaming = False

    async def take(self, frame: TextFrame) -> None:
        if frame.final:
            # A whole answer comes once more, with the final status.
            self._is_streaming = False
            return
        if not self._is_streaming:
            await self.close()
            self._is_streaming = True
        self._hold(frame.text)

    async def take_whole(self, text: str) -> None:
        if not self._is_streaming:
            await self.close()
            self._hold(text)
        self._is_streaming = False

    async def flush(self) -> None:
        return

    async def pause(self) -> None:
        return

    async def close(self) -> None:
        held, self._held, self._held_length = "".join(self._held), [], 0
        self._is_streaming = False
        if held.strip():
            await self._screen.whole([paragraph(held)])

    async def finish(self, response: str | None) -> None:
        if response is None or "".join(self._held).strip() != response.strip():
            await self.close()
        await write_answer(self._screen, response)

    def _hold(self, text: str) -> None:
        room = _NARRATION_LIMIT - self._held_length
        if room > 0:
            self._held.append(text[:room])
            self._held_length += len(text)


async def write_answer(screen: Screen, response: str | None) -> None:
    """Write the final answer to stdout, if there is one, and end its row."""
    if response:
        await screen.answer(shown(response))
        await screen.end_answer_row()
