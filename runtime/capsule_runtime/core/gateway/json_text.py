"""A JSON object with the places of its members, so that one can be changed and no other byte.

Two readers of one text must not find two things in it: what the gateway counts has to be what the
provider does. So a text is refused that is not UTF-8, that has a key twice in one object at any
depth, also in two spellings that some reader takes for one (*spellings*), or that is not JSON
proper (`NaN`, `Infinity`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from msgspec import Struct

MOST_BYTES = 32 * 1024 * 1024
"""Of a body. It is what one provider takes at most; nobody takes much more."""
MOST_STRUCTURE = 1024 * 1024
"""Characters of a body that stand in no string: each may be a value, which takes far more memory.

A conversation that fills the longest context there is has a quarter of this.
"""
_MOST_MEMBERS = 1_000
_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
"""Or what begins like one and has no end: it is looked at once, too."""
_BLANK = re.compile(r"[ \t\n\r]*")
NO_SPELLINGS: Mapping[str, str] = {}


class Malformed(Struct, frozen=True):
    """A body that has no one meaning, and *why*."""

    why: str


class TooLarge(Struct, frozen=True):
    """A body of more than *limit* bytes."""

    limit: int


class Member(NamedTuple):
    """A member of an object: what its value is, and where that stands in the text."""

    value: Any
    start: int
    end: int


class JsonObject:
    """An object that stands in *text* from *start* on. Members have the names of *spellings*."""

    def __init__(self, text: str, reader: _Reader, start: int = 0) -> None:
        """Raises ValueError or RecursionError if it is not one."""
        self.text = text
        self.members: dict[str, Member] = {}
        self._reader = reader
        place = _blanks(text, start)
        if text[place : place + 1] != "{":
            raise ValueError("it is not an object")
        self.inside = place + 1
        """Where the first member may be put in."""
        self.end = self._read(place + 1)

    @property
    def caching(self) -> list[object]:
        """Return all that was said about what is to be cached, at any depth."""
        return self._reader.caching

    def nested(self, key: str) -> JsonObject | None:
        """Return the object that *key* has, if it has one."""
        member = self.members.get(key)
        if member is None or not isinstance(member.value, dict):
            return None
        return JsonObject(self.text, self._reader, member.start)

    def _read(self, place: int) -> int:
        text, decode = self.text, self._reader.decoder.raw_decode
        place = _blanks(text, place)
        if text[place : place + 1] == "}":
            return place + 1
        while True:
            if text[place : place + 1] != '"':
                raise ValueError("a member has no name")
            if len(self.members) >= _MOST_MEMBERS:
                raise ValueError("it has too many members")
            name, place = decode(text, place)
            key = self._reader.spellings.get(name, name)
            if key in self.members:
                raise ValueError(f"it has {_shown(key)} twice")
            start = _blanks(text, _after(text, place, ":"))
            value, end = decode(text, start)
            self.members[key] = Member(value, start, end)
            place = _blanks(text, end)
            if text[place : place + 1] == "}":
                return place + 1
            place = _blanks(text, _after(text, place, ","))


class _Reader:
    """Read values, and refuse those with two meanings."""

    def __init__(self, spellings: Mapping[str, str]) -> None:
        self.spellings = spellings
        self.caching: list[object] = []
        self.decoder = json.JSONDecoder(
            object_pairs_hook=self._object, parse_constant=_refuse_constant
        )

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if self.spellings:
            pairs = [(self.spellings.get(key, key), value) for key, value in pairs]
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ValueError("a key stands twice in one object")
        if "cache_control" in found:
            self.caching.append(found["cache_control"])
        return found


def read_object(
    body: bytes, spellings: Mapping[str, str] = NO_SPELLINGS
) -> JsonObject | Malformed | TooLarge:
    """Return the object that *body* is. *spellings* tells other names of keys."""
    if len(body) > MOST_BYTES:
        return TooLarge(MOST_BYTES)
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        return Malformed("the body is not UTF-8")
    if len(text) > MOST_STRUCTURE and len(_STRING.sub("", text)) > MOST_STRUCTURE:
        return Malformed("the body has too many values")
    try:
        found = JsonObject(text, _Reader(spellings))
    except (ValueError, RecursionError) as exc:
        why = "nested too deeply" if isinstance(exc, RecursionError) else _why(exc)
        return Malformed(f"the body is no JSON object with one meaning: {why}")
    if _blanks(text, found.end) != len(text):
        return Malformed("something follows the body's object")
    return found


def _blanks(text: str, place: int) -> int:
    """Return where the blanks end that begin at *place*."""
    found = _BLANK.match(text, place)
    assert found is not None, "no blank at all fits too"
    return found.end()


def _after(text: str, place: int, mark: str) -> int:
    place = _blanks(text, place)
    if text[place : place + 1] != mark:
        raise ValueError(f"{mark!r} is missing")
    return place + 1


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON")


def _why(exc: Exception) -> str:
    return exc.msg if isinstance(exc, json.JSONDecodeError) else str(exc)


def _shown(key: str) -> str:
    return ascii(key[:64])
