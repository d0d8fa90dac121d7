"""Ask a provider's own counter how long a request is, where that is free.

The question has the members of the request that count, each byte for byte as it came, and no other:
counters refuse what is not theirs. One API has no counter.
"""

from __future__ import annotations

import json
from typing import assert_never

import msgspec
from msgspec import Struct

from capsule_runtime.core.gateway.apis import Api
from capsule_runtime.core.gateway.json_text import JsonObject
from capsule_runtime.core.gateway.reading import Request
from capsule_runtime.core.gateway.routes import Route
from capsule_runtime.core.gateway.told_usage import Tokens

_OF_MESSAGES = (
    "model", "messages", "system", "tools", "tool_choice", "thinking", "cache_control",
    "context_management", "output_config", "output_format",
)  # fmt: skip
_OF_RESPONSES = (
    "model", "input", "instructions", "tools", "tool_choice", "parallel_tool_calls", "reasoning",
    "text", "truncation",
)  # fmt: skip
_OF_GENERATE = ("contents", "systemInstruction", "tools", "toolConfig", "generationConfig")


class Question(Struct, frozen=True):
    """What to post to a counter, at *path* below the provider's base URL."""

    path: str
    query: str
    body: bytes


class _Told(Struct, rename="camel"):
    input_tokens: Tokens | None = msgspec.field(default=None, name="input_tokens")
    total_tokens: Tokens | None = None


_told = msgspec.json.Decoder(_Told)


def question_of(route: Route, request: Request) -> Question | None:
    """Return what to ask the counter about *request* to *route*; None where there is none."""
    match route.api:
        case Api.MESSAGES:
            return _beside(route, "/count_tokens", _members(request.body, _OF_MESSAGES))
        case Api.RESPONSES:
            return _beside(route, "/input_tokens", _members(request.body, _OF_RESPONSES))
        case Api.GENERATE:
            head = route.path.rpartition(":")[0]
            named = f'"model":{json.dumps(f"models/{request.asked.model}")}'
            inner = ",".join((named, *_members(request.body, _OF_GENERATE)))
            body = f'{{"generateContentRequest":{{{inner}}}}}'
            return Question(f"{head}:countTokens", "", body.encode())
        case Api.CHAT:
            return None
        case _:
            assert_never(route.api)


def count_in(body: bytes) -> int | None:
    """Return what a counter answered; None if that is no count."""
    try:
        told = _told.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return told.total_tokens if told.input_tokens is None else told.input_tokens


def _beside(route: Route, tail: str, members: list[str]) -> Question:
    return Question(f"{route.path}{tail}", route.query, f"{{{','.join(members)}}}".encode())


def _members(body: JsonObject, keys: tuple[str, ...]) -> list[str]:
    """Return those of *keys* that *body* has, with their values as they came."""
    found = [(key, body.members[key]) for key in keys if key in body.members]
    return [f"{json.dumps(key)}:{body.text[it.start : it.end]}" for key, it in found]
