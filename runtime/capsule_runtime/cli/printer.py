"""The one way by which text of a run reaches a terminal or a CI log.

A terminal obeys control characters, and a CI runner obeys lines that look like its commands. What
a harness says may hold both. So all text is made `Shown` here before it is written: controls,
escape sequences and bidirectional controls become visible characters, and workflow commands are
broken by a space. Everything else passes as it is, line feeds and tabs included.

The work can be done piece by piece: however a text is cut, the result is the same. Frames and log
entries that are asked for as JSON lines do not come through here, as they are passed on byte for
byte: in a JSON string C0 controls are escaped, but C1 and bidirectional controls are data, which
the reader must treat as such.
"""

from __future__ import annotations

import re
from typing import NewType

Shown = NewType("Shown", str)
"""Text that a terminal or a CI log may be given."""

_PICTURES = {code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\n\t"}
_NAMED = [
    *range(0x80, 0xA0),  # C1: one byte forms of escape sequences, and NEL
    0x061C,
    0x200E,
    0x200F,
    *range(0x2028, 0x202F),  # line and paragraph separator, then embeddings and overrides
    *range(0x2066, 0x206A),  # isolates
]
_VISIBLE = {**_PICTURES, 0x7F: "\u2421", **{code: f"<U+{code:04X}>" for code in _NAMED}}

_HIDDEN = re.compile(
    "[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069\\ud800-\\udfff]"
)
# Runners trim a line before they look at it; some trim more than Python calls white space.
_BLANK = "(?:[^\\S\\n]|[\\u180e\\u200b\\u2060\\ufeff])*"
_LINE_COMMAND = re.compile(f"^({_BLANK}:)(?=:)", re.MULTILINE)
_ANYWHERE_COMMAND = re.compile("(##(?:vso|teamcity)?)(?=\\[)", re.IGNORECASE)
_COMMAND_IN_JSON = re.compile("(##(?:vso|teamcity)?)\\[", re.IGNORECASE)
_LINE_START = re.compile(f"{_BLANK}:?")
_LONGEST_OPENING = len("##teamcity")


class Printer:
    """Make one stream of text harmless, piece by piece."""

    def __init__(self) -> None:
        self._held = ""
        """A carriage return that a line feed may follow."""
        self._line = ""
        """What matters of the current line: how it began, as long as it is blank or a colon."""
        self._recent = ""
        """The last characters given out, in which a command may have begun."""

    def feed(self, text: str) -> Shown:
        """Return what may be shown of *text*, which goes on where the last piece ended."""
        text = self._held + text
        self._held = "\r" if text.endswith("\r") else ""
        return self._broken(_visible(text.removesuffix("\r").replace("\r\n", "\n")))

    def close(self) -> Shown:
        """Return what was held back, at the end of the stream."""
        held, self._held = self._held, ""
        return self._broken(_visible(held))

    def _broken(self, text: str) -> Shown:
        """Put a space into every workflow command of *text*."""
        before = self._recent
        text = _ANYWHERE_COMMAND.sub("\\1 ", before + text)[len(before) :]
        self._recent = (before + text)[-_LONGEST_OPENING:]
        before = self._line
        text = _LINE_COMMAND.sub("\\1 ", before + text)[len(before) :]
        self._line = _opening_of((before + text).rpartition("\n")[2])
        return Shown(text)


def shown(text: str) -> Shown:
    """Return a whole *text* as it may be shown."""
    printer = Printer()
    return Shown(printer.feed(text) + printer.close())


def shown_line(text: str, limit: int = 4096) -> Shown:
    """Return the start of *text* as one line: white space becomes single spaces."""
    return shown(" ".join(text[:limit].split()))


def shown_json(text: str) -> Shown:
    """Return JSON *text* that means the same and may be shown: escapes stand for what may not."""
    text = _HIDDEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
    return Shown(_COMMAND_IN_JSON.sub(r"\1\\u005b", text))


def _visible(text: str) -> str:
    if _HIDDEN.search(text) is None:
        return text
    return _HIDDEN.sub(lambda found: _picture(ord(found[0])), text)


def _picture(code: int) -> str:
    return _VISIBLE.get(code) or f"<U+{code:04X}>"


def _opening_of(line: str) -> str:
    """Return what a command could still grow from at the start of *line*, or one letter if none."""
    opening = _LINE_START.match(line)
    assert opening is not None  # the pattern matches nothing as well
    if opening.end() < len(line):
        return "x"
    return ":" if line.endswith(":") else ""
