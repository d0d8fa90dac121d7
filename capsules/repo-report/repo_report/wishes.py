"""Read from the task which folder is meant, and how long the lists should be."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple, cast

DEFAULT_TOP = 10
MAX_TOP = 100
_TOP = re.compile(
    r"\b(?:top|first)\s+(\d{1,4})\b|\b(\d{1,4})\s+(?:largest|biggest|newest|latest)\b"
)
_QUOTED = re.compile(r"(?<!\w)([`\"'])([^`\"'\n]{1,300})\1")
_NAMED = re.compile(
    r"\b(?:in|on|under|only|folder|directory)\s+((?:\./)?[\w.@+-]+(?:/[\w.@+-]+)*/?)"
)
# "report on this repository" speaks of no folder, even where one is called `this`.
_PLAIN_WORDS = frozenset("a all an any each it me my our that the these this what your".split())


class Wishes(NamedTuple):
    """Hold what the task asks for; *unknown* is a folder it names that does not exist."""

    folder: str
    top: int
    unknown: str


def read_wishes(text: str, data: Iterable[object], is_folder: Callable[[str], bool]) -> Wishes:
    """Read the task's words, and data parts like `{"folder": "src", "top": 20}` before them."""
    folder, top = "", 0
    for part in data:
        if isinstance(part, dict):
            options = cast("dict[str, object]", part)
            folder = folder or _text(options.get("folder"))
            top = top or _number(options.get("top"))
    unknown = ""
    if folder:
        folder, unknown = (_clean(folder), "") if is_folder(_clean(folder)) else ("", folder)
    else:
        folder, unknown = _named_folder(text, is_folder)
    asked = _TOP.search(text)
    if not top and asked:
        top = int(asked[1] or asked[2])
    return Wishes(folder, min(top, MAX_TOP) or DEFAULT_TOP, unknown)


def _named_folder(text: str, is_folder: Callable[[str], bool]) -> tuple[str, str]:
    quoted = [found[1] for found in _QUOTED.findall(text)]
    named = [name.rstrip(".") for name in _NAMED.findall(text)]
    named = [name for name in named if name.lower() not in _PLAIN_WORDS]
    for name in (*quoted, *named):
        if _clean(name) and is_folder(_clean(name)):
            return _clean(name), ""
    # A quoted path that is not there was meant all the same; a mere word was not.
    return "", next((name for name in quoted if "/" in name.strip("./")), "")


def _clean(name: str) -> str:
    parts = [part for part in name.split("/") if part not in ("", ".")]
    return "/".join(parts)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _number(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 0
