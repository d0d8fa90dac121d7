"""A TOML file that a person wrote, to a struct. What is wrong is said in terms of the file."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import EllipsisType
from typing import Any, Literal, NamedTuple, NoReturn, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Struct

from capsule_runtime.errors import CapsuleError

_Kind = TypeVar("_Kind", bound=Struct)
_Part = str | int
Tables = Mapping[str, type[Struct]]
"""What each table holds, by its dotted name; the last name may be `*`, for any."""

_ONE = r"""(?:"(?:[^"\\]|\\.)*"|'[^']*'|[\w-]+)"""
_KEY = rf"{_ONE}(?:\s*\.\s*{_ONE})*"
_HEADER = rf"\s*\[\[?\s*({_KEY})\s*\]"
_ENTRY = rf"\s*({_KEY})\s*="


class Codes(NamedTuple):
    """What is raised when a file of this sort is wrong."""

    error: type[CapsuleError]
    syntax: str
    unknown: str
    missing: str
    wrong: str


class TomlFile(Struct, frozen=True):
    """The text of one file, and what files of its sort may say."""

    text: str
    path: str
    tables: Tables
    codes: Codes
    hint_for: Callable[[str], str]
    """How the value of a key, given by its dotted name, is written."""
    sample: str
    """Where to see how such a file is written at all."""
    unshown: frozenset[str] = frozenset()
    """Keys whose values no error shows."""

    def parse(self, kind: type[_Kind]) -> _Kind:
        """Return the file as a *kind*.

        Raises:
            CapsuleError: it is not TOML, or says what no such file may say; names file, line, key.
        """
        try:
            raw = tomllib.loads(self.text)
        except (ValueError, RecursionError) as exc:  # also numbers and nesting beyond all measure
            raise self.codes.error(self.codes.syntax, f"{self.path}: {exc}", self.sample) from exc
        try:
            return msgspec.convert(raw, kind)
        except msgspec.ValidationError as exc:
            self.refuse(str(exc), raw)

    def refuse(self, problem: str, raw: dict[str, Any]) -> NoReturn:
        """Say *problem*, which msgspec found in *raw*, in terms of the file."""
        what, _, where = problem.partition(" - at ")
        parts = tuple(self._parts_of(where.strip("`").removeprefix("$"), raw))
        if unknown := re.match(r"Object contains unknown field `(.+)`", what):
            known = self._fields_of(parts)
            near = difflib.get_close_matches(unknown[1], known, n=1)
            hint = f"Did you mean {near[0]!r}?" if near else f"Known here: {', '.join(known)}."
            key = (*parts, unknown[1])
            self._raise(self.codes.unknown, key, f"unknown key {_dotted(key)!r}", hint)
        if missing := re.match(r"Object missing required field `(.+)`", what):
            key = (*parts, missing[1])
            is_table = self._kind_of(key) is not None
            hint = f"Begin a table [{_dotted(key)}]." if is_table else f"Write {key[-1]} = … there."
            self.refuse_missing(key, hint)
        what = "it is not written right" if "matching regex" in what else what
        self.refuse_value(parts, _value_at(raw, parts), what)

    def refuse_value(
        self, key: tuple[_Part, ...], value: object, what: str, hint: str = ""
    ) -> NoReturn:
        """Say that *value* cannot stand at *key*, and why."""
        written = "" if self.unshown.intersection(key) else f" = {value!r}"
        told = f"{_dotted(key)}{written}: {what}"
        self._raise(self.codes.wrong, key, told, hint or self._hint(key))

    def refuse_missing(self, key: tuple[_Part, ...], hint: str) -> NoReturn:
        """Say that *key* is missing in its table."""
        self._raise(self.codes.missing, key[:-1], f"{_dotted(key)!r} is missing", hint)

    def _raise(self, code: str, key: tuple[_Part, ...], what: str, hint: str) -> NoReturn:
        raise self.codes.error(code, f"{_place(self.text, self.path, key)}: {what}", hint)

    def _hint(self, key: tuple[_Part, ...]) -> str:
        kind = self._kind_of(key[:-1])
        field = get_type_hints(kind).get(str(key[-1])) if kind and key else None
        for one in (field, *get_args(field)):
            if get_origin(one) is Literal:
                return f"One of {', '.join(map(repr, get_args(one)))}."
        return self.hint_for(_dotted(key))

    def _kind_of(self, table: tuple[_Part, ...]) -> type[Struct] | None:
        beside = (*table[:-1], "*") if table else ()
        return self.tables.get(_dotted(table)) or self.tables.get(".".join(map(str, beside)))

    def _fields_of(self, table: tuple[_Part, ...]) -> tuple[str, ...]:
        kind = self._kind_of(table)
        return kind.__struct_fields__ if kind else ()

    def _parts_of(self, where: str, raw: dict[str, Any]) -> Iterator[_Part]:
        """Yield the names on msgspec's path *where*, which leaves out the keys of a mapping."""
        value: Any = raw
        seen: tuple[_Part, ...] = ()
        for index, name in re.findall(r"\[(\d+|\.\.\.)\]|([^.\[\]]+)", where):
            part: _Part | EllipsisType = ... if index == "..." else int(index) if index else name
            if isinstance(part, EllipsisType):
                if (kind := self._kind_of((*seen, "*"))) is None:
                    return
                part = _first_wrong(value, kind)
            yield part
            seen, value = (*seen, part), value[part]


def _first_wrong(table: dict[str, Any], kind: type[Struct]) -> str:
    """Return the key of the first value in *table* that is no *kind*."""
    for key, value in table.items():
        try:
            msgspec.convert(value, kind)
        except msgspec.ValidationError:
            return key
    return next(iter(table))


def _value_at(raw: dict[str, Any], parts: Iterable[_Part]) -> object:
    value: Any = raw
    for part in parts:
        value = value[part]
    return value


def _dotted(parts: tuple[_Part, ...]) -> str:
    """Return a key as it is written, such as `limits.wall` or `harness.command[1]`."""
    text = ""
    for part in parts:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}" if re.fullmatch(r"[\w-]+|\*", part) else f'."{part}"'
    return text.removeprefix(".")


def _place(text: str, path: str, parts: tuple[_Part, ...]) -> str:
    """Return *path* and the line of the key, or else of the nearest table that holds it."""
    key = tuple(part for part in parts if isinstance(part, str))
    while (line := _line_of(text, key)) is None and key:
        key = key[:-1]
    return f"{path}:{line}" if line else path


def _line_of(text: str, key: tuple[str, ...]) -> int | None:
    """Find the line that sets *key*, or else the one that opens its table."""
    table: tuple[str, ...] = ()
    opened = None if key or not text else 1
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.match(_HEADER, line):
            table = _names(header[1])
        elif (entry := re.match(_ENTRY, line)) and (*table, *_names(entry[1])) == key:
            return number
        if table == key and opened is None:
            opened = number
    return opened


def _names(key: str) -> tuple[str, ...]:
    return tuple(name.strip("\"'") for name in re.findall(_ONE, key))
