"""Lines on a real terminal: colours, its width, and a status line that is always the last row.

The status line is drawn below everything else and wiped before anything else is written. It is
never drawn while a row of the answer is unfinished: the answer itself then shows that work goes on.
"""

from __future__ import annotations

from rich.console import Console
from rich.control import Control
from rich.segment import ControlType
from rich.text import Text

from capsule_runtime.cli.lines import Line
from capsule_runtime.cli.printer import Shown

_WIPE = Control(ControlType.CARRIAGE_RETURN, (ControlType.ERASE_IN_LINE, 2)).segment.text
# A row that is wider than it was measured must not wrap: wiping would then miss a part of it.
_NO_WRAP, _WRAP = "\x1b[?7l", "\x1b[?7h"


class LiveRenderer:
    """Render lines for the terminal behind stderr."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False, markup=False, emoji=False)

    def entry(self, head: Line, tail: Line = ()) -> Shown:
        end = _text_of(tail)
        text = _text_of(head)
        # The last column stays free: some terminals wrap as soon as it is filled.
        text.truncate(max(1, self._console.width - 1 - end.cell_len), overflow="ellipsis")
        text.append_text(end)
        return self._rendered(text)

    def whole(self, line: Line) -> Shown:
        return self._rendered(_text_of(line))

    def status(self, line: Line) -> Shown:
        """Return *line* as the status line: drawn over the last one, without a line feed."""
        drawn = self.entry(line).removesuffix("\n")
        return Shown(f"{_WIPE}{_NO_WRAP}{drawn}{_WRAP}")

    def wiped(self) -> Shown:
        """Return what removes the status line."""
        return Shown(_WIPE)

    def _rendered(self, text: Text) -> Shown:
        with self._console.capture() as captured:
            self._console.print(text, soft_wrap=True)
        return Shown(captured.get())


def _text_of(line: Line) -> Text:
    return Text.assemble(*((span.text, span.style) for span in line))
