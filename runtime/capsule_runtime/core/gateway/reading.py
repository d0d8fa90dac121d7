"""Read a body into what it asks for. Whatever the bytes are, there is an answer and no exception."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, assert_never

from msgspec.structs import replace

from capsule_runtime.core.gateway import (
    asked_chat,
    asked_generate,
    asked_messages,
    asked_responses,
)
from capsule_runtime.core.gateway.apis import Api
from capsule_runtime.core.gateway.asked import Asked, Findings, Unreadable
from capsule_runtime.core.gateway.json_text import (
    NO_SPELLINGS,
    JsonObject,
    Malformed,
    TooLarge,
    read_object,
)
from capsule_runtime.core.gateway.routes import Route

_MARKS = "{}[],:"
_AT_ONCE = 65_536
"""Characters: what is made of all at once could be eleven times a large body."""
_MOST_COMPOSED = 16
"""Pieces, which takes a second at worst. Of what is more, the bound is what NFKC makes at most."""
_EXPANSION = 11
"""Of bytes of UTF-8 under NFKC (unicode.org/faq/normalization)."""
_KNOWN: dict[Api, frozenset[str]] = {
    Api.MESSAGES: asked_messages.HARMLESS | asked_messages.REFUSED.keys(),
    Api.CHAT: asked_chat.HARMLESS | asked_chat.REFUSED.keys(),
    Api.RESPONSES: asked_responses.HARMLESS | asked_responses.REFUSED.keys(),
    Api.GENERATE: asked_generate.HARMLESS | asked_generate.REFUSED.keys(),
}


class Request(NamedTuple):
    """A body that was understood: what it asks for, and its text with the places in it."""

    asked: Asked
    body: JsonObject


def read_request(
    route: Route, body: bytes, betas: Iterable[str] = ()
) -> Request | Malformed | TooLarge:
    """Return what *body* asks for, sent to *route* with *betas* in its header."""
    spellings = asked_generate.SPELLINGS if route.api is Api.GENERATE else NO_SPELLINGS
    found = read_object(body, spellings)
    if not isinstance(found, JsonObject):
        return found
    if (why := _misspelt(found.members, _KNOWN[route.api])) is not None:
        return Malformed(why)
    findings = Findings(found)
    try:
        asked = _weighed(_asked(findings, route, betas), findings)
    except Unreadable as exc:
        return Malformed(str(exc)[:300].encode("ascii", "backslashreplace").decode())
    except RecursionError:
        return Malformed("the body is nested too deeply")
    return Request(asked, found)


def _asked(findings: Findings, route: Route, betas: Iterable[str]) -> Asked:
    match route.api:
        case Api.MESSAGES:
            return asked_messages.read_messages(findings, betas)
        case Api.CHAT:
            return asked_chat.read_chat(findings)
        case Api.RESPONSES:
            return asked_responses.read_responses(findings)
        case Api.GENERATE:
            streams = bool(route.streams)
            return asked_generate.read_generate(findings, route.model, streams=streams)
        case _:
            assert_never(route.api)


def _weighed(asked: Asked, findings: Findings) -> Asked:
    """Return *asked* with all that tells of its size."""
    media = sum(one.chars for one in findings.media)
    return replace(
        asked,
        features=tuple(findings.features),
        media=tuple(findings.media),
        text_bytes=max(0, _most_bytes(findings.body) - media) + findings.repeated_bytes,
        opaque_bytes=findings.opaque_bytes,
        pieces=findings.pieces,
        described_tools=findings.described_tools,
        marks=sum(findings.body.text.count(mark) for mark in _MARKS),
    )


def _most_bytes(body: JsonObject) -> int:
    """Return the bytes of the text, as it is or as a tokenizer makes it first, if that is more.

    Published tokenizers read UTF-8 as it is, or after NFKC, which may make 11 bytes of one.
    """
    text = body.text
    if text.isascii() and "\\u" not in text:
        return len(text)
    plain = text
    if "\\u" in text:
        values: dict[str, Any] = {key: member.value for key, member in body.members.items()}
        plain = json.dumps(values, ensure_ascii=False, separators=(",", ":"))
    return max(len(text.encode("utf-8")), _composed_bytes(plain))


def _composed_bytes(text: str) -> int:
    """Return the most bytes that *text* has after NFKC."""
    total = composed = 0
    for at in range(0, len(text), _AT_ONCE):
        piece = text[at : at + _AT_ONCE]
        if unicodedata.is_normalized("NFKC", piece):
            total += len(piece.encode("utf-8", "surrogatepass"))
        elif composed < _MOST_COMPOSED:
            composed += 1
            normal = unicodedata.normalize("NFKC", piece)
            total += len(normal.encode("utf-8", "surrogatepass"))
        else:
            total += _EXPANSION * len(piece.encode("utf-8", "surrogatepass"))
    return total


def _misspelt(members: Mapping[str, object], known: frozenset[str]) -> str | None:
    """Return what is wrong with a key that some reader takes for another one, if there is one.

    Some compare keys without regard to case, and some to underscores.
    """
    folded = {_folded(key): key for key in known}
    for key in members:
        meant = folded.get(_folded(key))
        if meant is not None and meant != key:
            return f"{key[:64]!a} is not how {meant} is written"
    return None


def _folded(key: str) -> str:
    return key.replace("_", "").casefold()
