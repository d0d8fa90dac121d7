"""Put a name in the place of each secret, in whole texts and in streams of any fragments.

Of what stands at the end of a stream only so much is held back as may be the beginning of a
secret. What is found is the leftmost, and the longest there; so it is the same however a text was cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from capsule_runtime.core.secrets import SECRET_CHARACTERS, forms_of

_TOO_DEEP = "[redacted]"
_SHORT = SECRET_CHARACTERS - 1
"""Ends of a text that are no longer are looked up; for longer ones the text is searched."""


class Found(Struct, frozen=True):
    """A secret in a text, from *start* to *end*, and the *mark* for its place."""

    start: int
    end: int
    mark: str


class Marks:
    """Where in a text which secret stands, in any of its forms."""

    def __init__(self, marks: Mapping[str, str]) -> None:
        """*marks* has what is put in the place of each form."""
        self._marks = marks
        self._short_starts = frozenset(form[:k] for form in marks for k in range(1, _SHORT + 1))

    def in_bytes(self) -> Marks:
        """Return the same for bytes that are read as latin-1."""
        return Marks({_as_bytes(form): _as_bytes(mark) for form, mark in self._marks.items()})

    def escaped(self) -> tuple[bytes, ...]:
        """Return what the forms become within JSON."""
        return tuple(msgspec.json.encode(form)[1:-1] for form in self._marks)

    def find(self, text: str) -> Iterator[Found]:
        """Yield the secrets of *text*, from left to right."""
        ahead = {form: at for form in self._marks if (at := text.find(form)) >= 0}
        while ahead:
            form = min(ahead, key=lambda form: (ahead[form], -len(form)))
            end = ahead[form] + len(form)
            yield Found(ahead[form], end, self._marks[form])
            passed = [form for form, at in ahead.items() if at < end]
            for form in passed:
                if (at := text.find(form, end)) >= 0:
                    ahead[form] = at
                else:
                    del ahead[form]

    def scan(self, text: str) -> tuple[list[Found], int]:
        """Return the secrets of *text* whatever follows it, and from where on that is not known."""
        found, unsure = list[Found](), self.beginning(text, 0)
        for it in self.find(text):
            if it.start >= unsure:
                break
            found.append(it)
            if unsure < it.end:
                unsure = self.beginning(text, it.end)
        return found, unsure

    def beginning(self, text: str, after: int) -> int:
        """Return where, *after* a place, an end of *text* begins that may become a secret."""
        if len(text) - after > _SHORT:
            at = min(
                (_long_beginning(form, text, after) for form in self._marks), default=len(text)
            )
            if at < len(text):
                return at
        for length in range(min(_SHORT, len(text) - after), 0, -1):
            if text[-length:] in self._short_starts:
                return len(text) - length
        return len(text)

    def mark_of(self, start: str) -> str:
        """Return the mark of the first form that begins with *start*."""
        return next(mark for form, mark in self._marks.items() if form.startswith(start))


class Stream:
    """One text that comes in fragments."""

    def __init__(self, marks: Marks) -> None:
        self._marks = marks
        self._text = ""
        self._shown = 0

    def feed(self, fragment: str) -> str:
        """Return what can be shown now that *fragment* has come."""
        text = self._text + fragment
        found, unsure = self._marks.scan(text)
        shown = _shown(text, found, self._shown, unsure)
        self._text, self._shown = text[unsure:], max(0, self._shown - unsure)
        return shown

    def flush(self) -> str:
        """Return what was held back. If it was a secret's beginning, its rest will not be shown."""
        shown = _shown(self._text, self._marks.find(self._text), self._shown, len(self._text))
        self._shown = len(self._text)
        return shown


class Redactor:
    """What one run must not tell."""

    def __init__(self, secrets: Mapping[str, str]) -> None:
        """*secrets* are the values by name."""
        forms = {name: forms_of(value) for name, value in secrets.items()}
        every = [form for some in forms.values() for form in some]
        marks = dict[str, str]()
        for name, some in forms.items():
            mark = f"[redacted {name}]"
            if any(form in mark for form in every):
                mark = "[...]"  # shorter than any form, so it is none
            for form in some:
                marks.setdefault(form, mark)
        self._marks = Marks(marks)
        self._of_bytes = self._marks.in_bytes()
        self._escaped = self._marks.escaped()

    def stream(self) -> Stream:
        """Return a redacted stream of text."""
        return Stream(self._marks)

    def byte_stream(self) -> Stream:
        """Return a redacted stream of bytes, which are read as latin-1."""
        return Stream(self._of_bytes)

    def text(self, text: str) -> str:
        """Return *text* without secrets."""
        return _shown(text, self._marks.find(text), 0, len(text))

    def cut_text(self, text: str) -> str:
        """Return *text*, which somebody may have cut in the middle of a secret, without secrets."""
        _, unsure = self._marks.scan(text)
        if len(text) - unsure < SECRET_CHARACTERS:
            return self.text(text)
        return self.text(text[:unsure]) + self._marks.mark_of(text[unsure:])

    def bytes(self, data: bytes) -> bytes:
        """Return *data* without secrets."""
        text = data.decode("latin-1")
        return _shown(text, self._of_bytes.find(text), 0, len(text)).encode("latin-1")

    def struct(self, said: Struct) -> Struct:
        """Return *said* without secrets in any of its texts and values."""
        return cast("Struct", self._walked(said)) if self._holds(said) else said

    def _holds(self, said: Struct) -> bool:
        """Tell whether there is a secret in *said*, or no quick way to know."""
        try:
            encoded = msgspec.json.encode(said)
        except (ValueError, TypeError, RecursionError):  # the log will refuse it as well
            return True
        return any(form in encoded for form in self._escaped)

    def _walked(self, value: object) -> object:
        try:
            return self._walk(value)
        except RecursionError:
            return _TOO_DEEP

    def _walk(self, value: object) -> object:
        kind = type(value)
        if kind is str:
            return self.text(cast("str", value))
        if kind is bytes:
            return self.bytes(cast("bytes", value))
        if kind is int or kind is float:
            return value if (text := self.text(repr(value))) == repr(value) else text
        if isinstance(value, list):
            return [self._walk(item) for item in cast("list[object]", value)]
        if isinstance(value, tuple):
            return tuple(self._walk(item) for item in cast("tuple[object, ...]", value))
        if isinstance(value, dict):
            return self._object(cast("dict[object, object]", value))
        if isinstance(value, Struct):
            fields = {name: getattr(value, name) for name in value.__struct_fields__}
            return replace(value, **{name: self._walked(it) for name, it in fields.items()})
        return value

    def _object(self, members: dict[object, object]) -> dict[object, object]:
        clean = dict[object, object]()
        for key, member in members.items():
            name = self._walk(key)
            while name in clean:  # two secrets of one name
                name = f"{name}'"
            clean[name] = self._walk(member)
        return clean


def _long_beginning(form: str, text: str, after: int) -> int:
    """Return where a long end of *text* begins with which *form* begins, but for all of it."""
    at, start = max(after, len(text) - len(form) + 1), form[:SECRET_CHARACTERS]
    while (at := text.find(start, at)) >= 0:
        if form.startswith(text[at:]):
            return at
        at += 1
    return len(text)


def _shown(text: str, found: Iterator[Found] | list[Found], shown: int, end: int) -> str:
    """Return *text* up to *end* with marks, but for what was *shown* of it before."""
    pieces, at = list[str](), shown
    for it in found:
        if it.end > shown:
            pieces += (text[at : it.start], it.mark)
            at = max(at, it.end)
    return "".join((*pieces, text[at:end]))


def _as_bytes(text: str) -> str:
    return text.encode("utf-8", "replace").decode("latin-1")
