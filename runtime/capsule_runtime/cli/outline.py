"""A value as indented lines, for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import msgspec

from capsule_runtime.cli.printer import Shown, shown, shown_line
from capsule_runtime.core.money import show_usd
from capsule_runtime.core.units import show_duration, show_size

_WIDEST = 24
"""Of names, where values begin: a longer one has its value behind it, and moves no other."""


def outline(value: object) -> Shown:
    """Return *value*, a struct or what JSON can hold, as lines of names and values."""
    return shown("".join(line + "\n" for line in _lines(msgspec.to_builtins(value), "")))


def _lines(value: object, indent: str) -> Iterator[str]:
    if isinstance(value, dict):
        fields = cast("dict[str, object]", value)
        told = {name: _told(name, inner) for name, inner in fields.items() if _is_short(inner)}
        labels = [len(label) for label, _ in told.values()]
        column = max((it for it in labels if it <= _WIDEST), default=0)
        for name, inner in fields.items():
            if name in told:
                label, text = told[name]
                yield f"{indent}{label:<{column}}  {text}"
            else:
                yield f"{indent}{name}"
                yield from _lines(inner, indent + "  ")
    elif isinstance(value, (list, tuple)):
        for inner in cast("list[object]", value):
            yield from _lines(inner, indent)
    else:
        yield f"{indent}{_word(value)}"


def _is_short(value: object) -> bool:
    return not isinstance(value, (dict, list, tuple)) or not value


def _told(name: str, value: object) -> tuple[str, str]:
    """Return name and value as people write them: a unit in the name moves to the value."""
    if isinstance(value, (int, float)) and name.endswith("_seconds"):
        return name.removesuffix("_seconds"), show_duration(value)
    if isinstance(value, (int, float)) and name.endswith("_bytes"):
        return name.removesuffix("_bytes"), show_size(int(value))
    if isinstance(value, int) and name.endswith("microusd"):
        return name.removesuffix("microusd") + "usd", show_usd(value)
    return name, _word(value)


def _word(value: object) -> str:
    if value is None or value in ("", [], {}, ()):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return shown_line(f"{value:g}" if isinstance(value, float) else str(value))
