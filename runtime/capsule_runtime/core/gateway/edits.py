"""The three ways in which a body is changed. All else goes on byte for byte as it came.

A member is put in at the front of its object, or its value is replaced where it stands. What a path
names and a body does not (the model of some API) is changed by `Route.renamed`.
"""

from __future__ import annotations

import json
from typing import assert_never

from msgspec import Struct
from msgspec.structs import replace

from capsule_runtime.core.gateway import asked_chat, asked_generate
from capsule_runtime.core.gateway.apis import Api, ChatCap
from capsule_runtime.core.gateway.asked import Asked
from capsule_runtime.core.gateway.json_text import JsonObject
from capsule_runtime.core.gateway.reading import Request


class CapOutput(Struct, frozen=True, tag="cap-output"):
    """Let a choice have at most so many *tokens*. A lower cap of the request's own stays."""

    tokens: int
    chat_key: ChatCap = "max_completion_tokens"


class IncludeUsage(Struct, frozen=True, tag="include-usage"):
    """Ask for the usage at the end of a stream, of an API that tells it only if asked."""


class RenameModel(Struct, frozen=True, tag="rename-model"):
    """Ask for the model *name* instead."""

    name: str


Edit = CapOutput | IncludeUsage | RenameModel


def capped(asked: Asked, edit: CapOutput) -> Asked:
    """Return *asked* as it is after *edit*."""
    if asked.caps:
        return replace(asked, caps=tuple((key, min(cap, edit.tokens)) for key, cap in asked.caps))
    return replace(asked, caps=((_cap_key(asked.api, edit), edit.tokens),))


def needs_usage(asked: Asked) -> bool:
    """Whether the usage at the end of the stream has to be asked for; it is to be swallowed then."""
    return asked.api is Api.CHAT and asked.streams and not asked.wants_usage


def edited(request: Request, *edits: Edit) -> bytes:
    """Return the body of *request* after *edits*, each kind of which comes once at most."""
    changes: list[tuple[int, int, str]] = []
    for edit in edits:
        match edit:
            case CapOutput():
                changes += _cap(request, edit)
            case IncludeUsage():
                changes += _usage(request)
            case RenameModel(name):
                changes += _rename(request, name)
            case _:
                assert_never(edit)
    text, pieces, place = request.body.text, list[str](), 0
    for start, end, new in sorted(changes):
        pieces += (text[place:start], new)
        place = end
    return "".join((*pieces, text[place:])).encode("utf-8")


def _cap(request: Request, edit: CapOutput) -> list[tuple[int, int, str]]:
    asked, body = request
    if asked.api is not Api.GENERATE:
        if asked.caps:
            return _lowered(asked, body, edit)
        return [_set(body, _cap_key(asked.api, edit), edit.tokens)]
    config = body.nested(asked_generate.CONFIG)
    if config is None:
        return [_set(body, asked_generate.CONFIG, {asked_generate.CAP: edit.tokens})]
    if asked.caps:
        return _lowered(asked, config, edit)
    return [_set(config, asked_generate.CAP, edit.tokens)]


def _lowered(asked: Asked, body: JsonObject, edit: CapOutput) -> list[tuple[int, int, str]]:
    return [_set(body, key, edit.tokens) for key, cap in asked.caps if cap > edit.tokens]


def _cap_key(api: Api, edit: CapOutput) -> str:
    match api:
        case Api.MESSAGES:
            return "max_tokens"
        case Api.CHAT:
            return edit.chat_key
        case Api.RESPONSES:
            return "max_output_tokens"
        case Api.GENERATE:
            return asked_generate.CAP
        case _:
            assert_never(api)


def _usage(request: Request) -> list[tuple[int, int, str]]:
    asked, body = request
    if not needs_usage(asked):
        return []
    options = body.nested(asked_chat.STREAM_OPTIONS)
    if options is None:
        return [_set(body, asked_chat.STREAM_OPTIONS, {asked_chat.INCLUDE_USAGE: True})]
    return [_set(options, asked_chat.INCLUDE_USAGE, True)]


def _rename(request: Request, name: str) -> list[tuple[int, int, str]]:
    if request.asked.api is Api.GENERATE and "model" not in request.body.members:
        return []
    return [_set(request.body, "model", name)]


def _set(body: JsonObject, key: str, value: object) -> tuple[int, int, str]:
    """Return the change that gives *key* of *body* that *value*."""
    if (member := body.members.get(key)) is not None:
        return member.start, member.end, json.dumps(value)
    comma = ", " if body.members else ""
    return body.inside, body.inside, f"{json.dumps(key)}: {json.dumps(value)}{comma}"
