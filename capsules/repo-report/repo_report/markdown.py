"""Write names and numbers so that nothing in them can be taken for Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime, timedelta, timezone

MAX_SHOWN = 200
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)  # noqa: UP017  # datetime.UTC is 3.11
_BACKTICKS = re.compile("`+")


def visible(text: str) -> str:
    """Replace what no one can see, a newline and a stray byte included, by its escape."""
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() else _escape(ord(sign)) for sign in text)


def code(text: str) -> str:
    """Write *text* as a code span, whatever is in it."""
    text = _shortened(visible(text))
    longest = max((len(run) for run in _BACKTICKS.findall(text)), default=0)
    if longest == 0 and text == text.strip() and text:
        return f"`{text}`"
    fence = "`" * (longest + 1)
    return f"{fence} {text} {fence}"


def cell(text: str) -> str:
    """Write *text* as a code span for a table; a name with a pipe becomes entities.

    Renderers disagree about a pipe in a code span, and about a backslash before it.
    """
    if "|" not in text:
        return code(text)
    text = _shortened(visible(text))
    return "".join(sign if sign.isalnum() or sign in " /" else f"&#{ord(sign)};" for sign in text)


def table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Lay out a table; a column whose title ends with a colon is aligned to the right."""
    titles = list(columns)
    rules = ["---:" if title.endswith(":") else "---" for title in titles]
    lines = [[title.rstrip(":") for title in titles], rules, *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def counted(number: int, one: str, many: str = "") -> str:
    """Write a number with its noun: `1 file`, `1,234 files`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def size(number: int) -> str:
    """Write a number of bytes: `17 B`, `1.5 MiB`."""
    if number < 1024:
        return f"{number} B"
    amount, unit = number / 1024, "KiB"
    for larger in ("MiB", "GiB", "TiB"):
        if amount < 1023.95:
            break
        amount, unit = amount / 1024, larger
    return f"{amount:,.1f} {unit}"


def moment(seconds: float) -> str:
    """Write a time in UTC; one that no calendar holds is `unknown`."""
    try:
        return (_EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%d %H:%M")
    except OverflowError:
        return "unknown"


def _escape(point: int) -> str:
    named = {9: "\\t", 10: "\\n", 13: "\\r"}
    if point in named:
        return named[point]
    # A byte of a name that is not UTF-8 comes from the system as one of these.
    if 0xDC80 <= point <= 0xDCFF:
        return f"\\x{point - 0xDC00:02x}"
    if point < 0x100:
        return f"\\x{point:02x}"
    return f"\\u{point:04x}" if point < 0x10000 else f"\\U{point:08x}"


def _shortened(text: str) -> str:
    if len(text) <= MAX_SHOWN:
        return text
    half = MAX_SHOWN // 2
    return f"{text[:half]}…{text[-half:]}"
