"""How a run is shown: for people, as frames, or by its answer alone."""

from __future__ import annotations

from typing import Protocol

from capsule_runtime.cli.answers import write_answer
from capsule_runtime.cli.lines import SPACE, Line, paragraph, words
from capsule_runtime.cli.screen import Screen
from capsule_runtime.cli.warnings import closing_lines
from capsule_runtime.core.chain import Row
from capsule_runtime.core.log import Record
from capsule_runtime.core.outcome import Outcome


class View(Protocol):
    """Show one run. The follower calls `show` with each row, then `ended` once."""

    async def show(self, row: Row) -> None:
        """Show the next row of the log."""
        ...

    def notice(self, text: str) -> None:
        """Say something about the run that is not in its log. Never waits."""
        ...

    def tick(self) -> None:
        """Show that time goes by. Never waits."""
        ...

    async def ended(self, record: Record) -> None:
        """Show how the run ended."""
        ...


class JsonlView:
    """Frames on stdout, byte for byte as they are in the log."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen

    async def show(self, row: Row) -> None:
        if frames := row.frames():
            await self._screen.data(frames)

    def notice(self, text: str) -> None:
        self._screen.notice([paragraph(text)])

    def tick(self) -> None:
        return

    async def ended(self, record: Record) -> None:
        # No frame holds them, and whoever reads frames should know all the same.
        for line in closing_lines(record):
            await self._screen.whole([paragraph(line)])


class QuietView:
    """The answer on stdout, a failure on stderr, and nothing else."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen

    async def show(self, row: Row) -> None:
        return

    def notice(self, text: str) -> None:
        self._screen.notice([paragraph(text)])

    def tick(self) -> None:
        return

    async def ended(self, record: Record) -> None:
        await write_answer(self._screen, record.final.response if record.final else None)
        if record.outcome is not Outcome.COMPLETED:
            await self._screen.whole(ending_of(record))


class SilentView:
    """Nothing: nobody is there to see it."""

    async def show(self, row: Row) -> None:
        return

    def notice(self, text: str) -> None:
        return

    def tick(self) -> None:
        return

    async def ended(self, record: Record) -> None:
        return


def ending_of(record: Record) -> Line:
    """Return in one line how a run ended."""
    message = record.final.message if record.final else "the log ends before the run does"
    reason = record.ended.reason.value if record.ended else "unknown"
    match record.outcome:
        case Outcome.COMPLETED:
            return [words("✓", "green"), SPACE, words("completed")]
        case Outcome.CANCELED:
            return [words("■", "yellow"), SPACE, words(message)]
        case _:
            return [words("✗", "bold red"), SPACE, paragraph(message or reason, "red")]
