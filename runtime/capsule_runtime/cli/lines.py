"""Lines for people, with styles beside the words, and the plain way to write them.

Plain lines go to pipes, CI logs and dumb terminals. On a real terminal rich gives them colour and
cuts them to its width (`live`); it is imported there only, and it gets text, never markup.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from capsule_runtime.cli.printer import Shown, shown, shown_line

PLAIN_WIDTH = 200
"""Characters of a one-row line where no terminal sets the width."""


class Span(NamedTuple):
    """Some words in one style; the style is a word of rich's, such as "bold" or "red"."""

    text: Shown
    style: str = ""


Line = Sequence[Span]

SPACE, GAP = Span(Shown(" ")), Span(Shown("  "))


def words(text: str, style: str = "") -> Span:
    """Return *text* as it may be shown, on one row, without white space around it."""
    return Span(shown_line(text), style)


def paragraph(text: str, style: str = "") -> Span:
    """Return *text* as it may be shown, with its line feeds."""
    return Span(shown(text), style)


class Renderer(Protocol):
    """How lines look on one kind of output."""

    def entry(self, head: Line, tail: Line = ()) -> Shown:
        """Return one row, with its line feed; where it is too long, *head* is cut."""
        ...

    def whole(self, line: Line) -> Shown:
        """Return all of *line*, however many rows it takes, with its line feed."""
        ...


class PlainRenderer:
    """Words alone."""

    def entry(self, head: Line, tail: Line = ()) -> Shown:
        start, end = _text_of(head), _text_of(tail)
        room = max(0, PLAIN_WIDTH - len(end))
        if len(start) > room:
            start = start[: room - 1] + "…"
        return _row(start + end)

    def whole(self, line: Line) -> Shown:
        return _row(_text_of(line))


def _text_of(line: Line) -> str:
    return "".join(span.text for span in line)


def _row(text: str) -> Shown:
    # Printed once more as a whole: words that were harmless apart can be a command together.
    return shown(text.rstrip() + "\n")
