"""The stable error codes and what they mean: `codes.toml`, as values."""

from __future__ import annotations

import tomllib
from pathlib import Path

import msgspec
from msgspec import Struct

_FILE = Path(__file__).with_name("codes.toml")


class Code(Struct, frozen=True, forbid_unknown_fields=True):
    """One error code in long form."""

    title: str
    meaning: str
    """When it is reported."""
    remedy: str
    """What to do about it."""


def load_codes() -> dict[str, Code]:
    """Return every code by its name."""
    return msgspec.convert(tomllib.loads(_FILE.read_text(encoding="utf-8")), dict[str, Code])
