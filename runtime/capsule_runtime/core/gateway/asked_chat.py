"""Requests of the Chat Completions API, as its inventor and many other providers serve it.

Functions and custom tools pass, since the client runs them. Features that are named: more than one
answer, what searches by itself (also by the name of a model), audio, predictions (what is not taken
of one is paid beside the answer), service tiers, files, and what routers add: other models, plugins. And thoughts that some providers
let stand beside the cap, in words of their own.
"""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct

from capsule_runtime.core.gateway.apis import Api
from capsule_runtime.core.gateway.asked import (
    Asked,
    FeatureKind,
    Findings,
    choices_of,
    converted,
    counts,
    flag,
    lifetime_of,
    model_name,
    parts_of,
)

STREAM_OPTIONS = "stream_options"
INCLUDE_USAGE = "include_usage"
CAPS = ("max_completion_tokens", "max_tokens")
HARMLESS = frozenset(
    {
        *CAPS, "model", "messages", "stream", "stream_options", "temperature", "top_p", "top_k",
        "min_p", "stop", "presence_penalty", "frequency_penalty", "repetition_penalty",
        "logit_bias", "logprobs", "top_logprobs", "user", "seed", "tools", "tool_choice",
        "parallel_tool_calls", "functions", "function_call", "response_format",
        "reasoning_effort", "verbosity", "metadata", "store", "safety_identifier",
        "prompt_cache_key", "prompt_cache_retention", "n",
        "chat_template_kwargs", "reasoning", "include_reasoning", "reasoning_format",
    }
)  # fmt: skip
REFUSED: dict[str, tuple[FeatureKind, tuple[object, ...]]] = {
    "web_search_options": ("server tool", ()),
    "plugins": ("server tool", ([],)),
    "audio": ("media", ()),
    "modalities": ("media", (["text"],)),
    "prediction": ("prediction", ()),
    "service_tier": ("service tier", ("auto", "default", "standard")),
    "background": ("background", (False,)),
    "thinking": ("thoughts", ({"type": "disabled"},)),
    "enable_thinking": ("thoughts", (False,)),
    "thinking_budget": ("thoughts", (0,)),
}
ACTING_MODEL = re.compile(r"search|research|:online|^sonar|/sonar|compound|computer-use")
"""In the names of models that do more than to answer, at a price of its own."""
SPEAKING_MODEL = re.compile(r"audio|realtime|image|tts|transcribe|-live")
"""In the names of models that write more than text, at a price of its own."""


class _Url(Struct):
    url: str = ""


class _Part(Struct):
    type: str = ""
    image_url: _Url | str | None = None
    file: Any = None


class _Message(Struct):
    content: Any = None
    audio: Any = None


class _Tool(Struct):
    type: str = "function"


class _StreamOptions(Struct):
    include_usage: bool | None = None


def read_chat(found: Findings) -> Asked:
    """Return what a body asks for.

    Raises:
        Unreadable: it is no request.
    """
    found.keys(found.values(), HARMLESS, REFUSED)
    messages = converted(found.value("messages"), list[_Message], "messages")
    for message in messages:
        if message.audio is not None:
            found.feature("media", "messages audio")
        _parts(found, message.content)
    tools = converted(found.value("tools") or [], list[_Tool], "tools")
    for tool in tools:
        if tool.type not in {"function", "custom"}:
            found.feature("server tool", "tools", tool.type)
    functions = converted(found.value("functions") or [], list[Any], "functions")
    found.pieces += len(messages) + len(tools) + len(functions)
    options = converted(found.value("stream_options") or {}, _StreamOptions, "stream_options")
    model = model_name(found.value("model"))
    model_features(found, model)
    choices = choices_of(found.value("n"), "n")
    if choices > 1:
        found.feature("choices", "n", choices)
    return Asked(
        Api.CHAT,
        model,
        flag(found, "stream"),
        counts(found.values(), CAPS),
        choices=choices,
        wants_usage=bool(options.include_usage),
        caches_for=lifetime_of(found),
    )


def model_features(found: Findings, model: str) -> None:
    """Note what *model* does by itself, as its name tells."""
    if ACTING_MODEL.search(model.lower()):
        found.feature("server tool", "model", model)
    elif SPEAKING_MODEL.search(model.lower()):
        found.feature("media", "model", model)


def image_url(found: Findings, url: str, where: str) -> None:
    """Note the image at *url*, which may be in the body."""
    head, comma, data = url.partition(",")
    if comma and head.startswith("data:image/") and head.endswith(";base64"):
        found.image(data)
    elif head.startswith("data:"):
        found.feature("media", where, head)
    else:
        found.feature("remote media", where, "image_url")


def _parts(found: Findings, content: Any) -> None:
    for part in parts_of(content, list[_Part], "messages"):
        found.pieces += 1
        match part.type:
            case "text" | "refusal" | "thinking" | "reasoning":
                pass
            case "image_url":
                given = part.image_url
                url = given.url if isinstance(given, _Url) else given or ""
                image_url(found, url, "messages")
            case "file":
                found.feature("file at the provider", "messages file")
            case "input_audio" | "video_url":
                found.feature("media", "messages", part.type)
            case kind:
                found.feature("unknown", "messages", kind)
