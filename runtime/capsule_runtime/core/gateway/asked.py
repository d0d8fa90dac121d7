"""What a request asks of a model, as far as it matters for money.

Each API has a module that reads its bodies into this: `asked_messages`, `asked_chat`,
`asked_responses`, `asked_generate`; `reading` picks one. They list by name every feature for which
nobody can prove what it costs at most, and everything that they do not know: see `bounds` for what
becomes of them. A key whose value is null, or that which it has anyhow, asks for nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct

from capsule_runtime.core.calls import LONGEST_NAME
from capsule_runtime.core.gateway.apis import Api
from capsule_runtime.core.gateway.json_text import JsonObject
from capsule_runtime.core.gateway.media import Media, document_of, image_of

FeatureKind = Literal[
    "state at the provider",
    "cached content",
    "file at the provider",
    "remote media",
    "server tool",
    "background",
    "choices",
    "service tier",
    "beta",
    "media",
    "prediction",
    "thoughts",
    "unknown",
]
Lifetime = Literal["none", "minutes", "hour"]

_MOST_CHOICES = 128
_LONGEST_SHOWN = 80
MOST_CAP = 2**31 - 1
"""Of an output in tokens: more than any model writes."""


class Feature(Struct, frozen=True, order=True):
    """Something that a request asks for, of which nobody can prove what it costs at most.

    *name* is how it is written in the request, with what it is in: "tools web_search_20250305".
    """

    kind: FeatureKind
    name: str

    @property
    def shown(self) -> str:
        """Return it for people."""
        return f"{self.name} ({self.kind})"


class Asked(Struct, frozen=True):
    """What a request asks for. *caps* are the keys that bound its output, as they are in its body.

    *text_bytes* are those of all that is no medium; *pieces* counts messages, items and tools, for
    what a provider writes around each.
    """

    api: Api
    model: str
    streams: bool = False
    caps: tuple[tuple[str, int], ...] = ()
    thinking_budget: int | None = None
    choices: int = 1
    wants_usage: bool = False
    """Whether the client asked for the usage at the end of a stream."""
    caches_for: Lifetime = "none"
    features: tuple[Feature, ...] = ()
    media: tuple[Media, ...] = ()
    text_bytes: int = 0
    opaque_bytes: int = 0
    """Of *text_bytes*: what only the provider can read, such as thoughts that it encrypted."""
    pieces: int = 0
    described_tools: int = 0
    """Tools that the client runs and the provider describes, in words of its own."""
    marks: int = 0
    """Brackets, commas and colons: a provider may write JSON anew, with blanks."""

    @property
    def output_cap(self) -> int | None:
        """Return the most tokens that a choice may have; None if the request says nothing."""
        return max((cap for _, cap in self.caps), default=None)


class Unreadable(Exception):
    """A body that is JSON but no request, and why. It never leaves this package."""


class Findings:
    """Gather what a body has, while it is read."""

    def __init__(self, body: JsonObject) -> None:
        self.body = body
        self.features: list[Feature] = []
        self.media: list[Media] = []
        self.opaque_bytes = 0
        self.repeated_bytes = 0
        self.tools: dict[str, Any] = {}
        self.pieces = 0
        self.described_tools = 0

    def feature(self, kind: FeatureKind, *name: object) -> None:
        """Note a feature. *name* is made of what it is in and how it is written there."""
        words = " ".join(str(word) for word in name)
        plain = words.encode("ascii", "backslashreplace").decode()
        shown = "".join(char if char.isprintable() else "?" for char in plain)
        self.features.append(Feature(kind, shown[:_LONGEST_SHOWN]))

    def image(self, data: str) -> None:
        """Note an image that is in the body, in base64."""
        self.media.append(image_of(data))

    def document(self, data: str) -> None:
        """Note a document of pages that is in the body, in base64."""
        self.media.append(document_of(data))

    def opaque(self, *texts: str | None) -> None:
        """Note what only the provider can read."""
        self.opaque_bytes += sum(len(text) for text in texts if text)

    def tool(self, name: str, definition: Any) -> None:
        """Note a tool that may be referred to by its name."""
        self.tools[name] = definition

    def reference(self, name: str, where: str) -> None:
        """Note that a tool's definition stands once more where its name does."""
        if name in self.tools:
            # It may be written anew, with blanks: twice its text is more than that makes of it.
            self.repeated_bytes += 2 * len(json.dumps(self.tools[name]))
        else:
            self.feature("unknown", where, "tool_reference", name)

    def keys(
        self,
        found: Mapping[str, Any],
        harmless: frozenset[str],
        refused: Mapping[str, tuple[FeatureKind, tuple[object, ...]]],
        within: str = "",
    ) -> None:
        """Note every key of *found* that is neither harmless nor has a value that asks for nothing.

        *refused* tells of keys what they ask for, and the values with which they do not.
        """
        for key, value in found.items():
            if key in harmless or value is None:
                continue
            kind, neutral = refused.get(key, ("unknown", ()))
            # 1 == True: what is alike must be of the same type, too.
            if not any(value == one and type(value) is type(one) for one in neutral):
                self.feature(kind, f"{within}{key}")

    def value(self, key: str) -> Any:
        """Return the value of a member of the body; None if there is none."""
        member = self.body.members.get(key)
        return None if member is None else member.value

    def values(self) -> dict[str, Any]:
        """Return all members of the body."""
        return {key: member.value for key, member in self.body.members.items()}


T = TypeVar("T")


def converted(value: Any, form: type[T], what: str) -> T:
    """Return *value* as *form*.

    Raises:
        Unreadable: it is not like that.
    """
    try:
        return msgspec.convert(value, form)
    except msgspec.ValidationError as exc:
        raise Unreadable(f"{what}: {exc}") from exc


def parts_of(value: Any, form: type[list[T]], what: str) -> list[T]:
    """Return the parts that *value* has: none where it is a text, or nothing.

    Raises:
        Unreadable: it is not like that.
    """
    if value is None or isinstance(value, str):
        return []
    return converted(value, form, what)


class _Control(Struct):
    ttl: Any = None


def lifetime_of(found: Findings) -> Lifetime:
    """Return for how long the request caches at most; what it says unclearly is an hour.

    Raises:
        Unreadable: it says so in no form that there is.
    """
    said = [one for one in found.body.caching if one is not None]
    controls = [converted(one, _Control, "cache_control") for one in said]
    if not controls:
        return "none"
    return "minutes" if all(one.ttl in (None, "5m") for one in controls) else "hour"


def flag(found: Findings, key: str) -> bool:
    """Return whether *key* of the body is true.

    Raises:
        Unreadable: it is something else than true, false or null.
    """
    value = found.value(key)
    if value is not None and type(value) is not bool:
        raise Unreadable(f"{key} is neither true nor false")
    return bool(value)


def counts(values: Mapping[str, Any], keys: Iterable[str]) -> tuple[tuple[str, int], ...]:
    """Return those of *keys* that have a number of tokens.

    Raises:
        Unreadable: one is no whole number, or none that can be meant.
    """
    found = tuple((key, values[key]) for key in keys if values.get(key) is not None)
    for key, value in found:
        if type(value) is not int or not 0 <= value <= MOST_CAP:
            raise Unreadable(f"{key} is no number of tokens")
    return found


def choices_of(value: Any, key: str) -> int:
    """Return how many answers are asked for.

    Raises:
        Unreadable: *value* is no such number.
    """
    if value is None:
        return 1
    if type(value) is not int or not 1 <= value <= _MOST_CHOICES:
        raise Unreadable(f"{key} is no number of answers")
    return value


def model_name(value: Any) -> str:
    """Return the name of a model.

    Raises:
        Unreadable: *value* is none.
    """
    if type(value) is not str or not 0 < len(value) <= LONGEST_NAME or not value.isprintable():
        raise Unreadable("model is not the name of a model")
    if value != value.strip():
        raise Unreadable("model has blanks around it")
    return value
