"""Versions of a harness: found in what it prints, and held against a range such as >=2.1,<3."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable

_VERSION = re.compile(r"(?<![\w.])v?(\d{1,9}(?:\.\d{1,9}){1,3}(?:-[0-9A-Za-z.-]{1,40})?)")
_BOUND = re.compile(r"(==|>=|<=|<|>)([\d.]+)")
_PARTS = 4

_COMPARISONS: dict[str, Callable[[tuple[int, ...], tuple[int, ...]], bool]] = {
    "==": operator.eq,
    ">=": operator.ge,
    "<=": operator.le,
    "<": operator.lt,
    ">": operator.gt,
}


def find_version(text: str) -> str | None:
    """Return the first version that *text* names: two numbers or more, with dots between."""
    found = _VERSION.search(text)
    return found[1] if found else None


def is_within(version: str, bounds: str) -> bool:
    """Whether *version* is in the range *bounds*. What follows a dash in it does not count."""
    ours = _numbers(version.partition("-")[0])
    return all(_COMPARISONS[how](ours, _numbers(bound)) for how, bound in _BOUND.findall(bounds))


def _numbers(version: str) -> tuple[int, ...]:
    parts = [int(part) for part in version.split(".")]
    return tuple(parts + [0] * (_PARTS - len(parts)))
