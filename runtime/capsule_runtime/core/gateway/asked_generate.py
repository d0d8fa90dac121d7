"""Requests of the GenerateContent API. Keys have two spellings there, and both are read.

Declared functions pass, since the client runs them. Features that are named: every other tool, what
was cached before, files and links, more than one candidate, all that is heard, seen in motion,
spoken or drawn, and service tiers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from capsule_runtime.core.gateway.apis import Api
from capsule_runtime.core.gateway.asked import (
    Asked,
    FeatureKind,
    Findings,
    Unreadable,
    choices_of,
    converted,
    counts,
    model_name,
)
from capsule_runtime.core.gateway.asked_chat import model_features

CONFIG = "generationConfig"
CAP = "maxOutputTokens"
HARMLESS = frozenset(
    {
        "contents", "systemInstruction", "tools", "toolConfig", "safetySettings", CONFIG, "labels",
        "model",
    }
)  # fmt: skip
REFUSED: dict[str, tuple[FeatureKind, tuple[object, ...]]] = {
    "cachedContent": ("cached content", ()),
    "serviceTier": ("service tier", ("standard",)),
    "store": ("state at the provider", (False,)),
}
_CONFIG_HARMLESS = frozenset(
    {
        CAP, "candidateCount", "stopSequences", "responseMimeType", "responseSchema",
        "responseJsonSchema", "_responseJsonSchema", "temperature", "topP", "topK", "seed",
        "presencePenalty", "frequencyPenalty", "responseLogprobs", "logprobs", "mediaResolution",
        "thinkingConfig",
    }
)  # fmt: skip
_CONFIG_REFUSED: dict[str, tuple[FeatureKind, tuple[object, ...]]] = {
    "responseModalities": ("media", (["TEXT"], ["text"], [])),
    "speechConfig": ("media", ()),
    "imageConfig": ("media", ()),
}
_PARTS = frozenset(
    {
        "text", "thought", "thoughtSignature", "functionCall", "functionResponse", "inlineData",
        "executableCode", "codeExecutionResult", "mediaResolution",
    }
)  # fmt: skip
_OTHERS = ("thinkingBudget", "includeThoughts", "thinkingLevel", "mimeType", "fileData")
_OTHERS_OF_TOOLS = ("functionDeclarations", "googleSearch", "codeExecution", "urlContext")
_WORD = re.compile(r"(?<=[a-z])(?=[A-Z])")


def _spellings() -> Mapping[str, str]:
    """Return the names that are written with underscores too, and the others for them."""
    known = {*HARMLESS, *REFUSED, *_CONFIG_HARMLESS, *_CONFIG_REFUSED, *_PARTS}
    names = {*known, *_OTHERS, *_OTHERS_OF_TOOLS}
    return {_WORD.sub("_", name).lower(): name for name in names if _WORD.search(name)}


SPELLINGS = _spellings()


class _Blob(Struct):
    mimeType: str = ""
    data: str = ""


class _Response(Struct):
    parts: list[dict[str, Any]] = []


class _Content(Struct):
    parts: list[dict[str, Any]] = []


class _Thinking(Struct):
    thinkingBudget: Any = None


def read_generate(found: Findings, model: str | None, *, streams: bool) -> Asked:
    """Return what a body asks of *model*; both are told by the path.

    Raises:
        Unreadable: it is no request.
    """
    found.keys(found.values(), HARMLESS, REFUSED)
    named = model_name(model)
    _check_same(found.value("model"), named)
    model_features(found, named)
    contents = converted(found.value("contents"), list[_Content], "contents")
    if (system := found.value("systemInstruction")) is not None:
        contents.append(converted(system, _Content, "systemInstruction"))
    for content in contents:
        found.pieces += 1
        _parts(found, content.parts)
    _tools(found)
    config = converted(found.value(CONFIG) or {}, dict[str, Any], CONFIG)
    found.keys(config, _CONFIG_HARMLESS, _CONFIG_REFUSED, f"{CONFIG}.")
    choices = choices_of(config.get("candidateCount"), "candidateCount")
    if choices > 1:
        found.feature("choices", "candidateCount", choices)
    return Asked(
        Api.GENERATE, named, streams, counts(config, (CAP,)), _budget(config), choices=choices
    )


def _check_same(given: Any, named: str) -> None:
    if given is not None and str(given).removeprefix("models/") != named:
        raise Unreadable("the body names another model than the path")


def _parts(found: Findings, parts: list[dict[str, Any]]) -> None:
    for part in parts:
        found.pieces += 1
        if signature := part.get("thoughtSignature"):
            found.opaque(str(signature))
        if part.get("inlineData") is not None:
            _inline(found, converted(part["inlineData"], _Blob, "contents"))
        if part.get("functionResponse") is not None:
            _parts(found, converted(part["functionResponse"], _Response, "contents").parts)
        for key in sorted(part.keys() - _PARTS):
            kind: FeatureKind = "remote media" if key == "fileData" else "unknown"
            found.feature(kind, "contents", key)


def _inline(found: Findings, blob: _Blob) -> None:
    if blob.mimeType.startswith("image/"):
        found.image(blob.data)
    elif blob.mimeType == "application/pdf":
        found.document(blob.data)
    elif not blob.mimeType.startswith("text/"):
        found.feature("media", "contents", blob.mimeType or "inlineData")


def _tools(found: Findings) -> None:
    for tool in converted(found.value("tools") or [], list[dict[str, Any]], "tools"):
        declared: Any = tool.get("functionDeclarations") or []
        found.pieces += len(converted(declared, list[Any], "tools"))
        for key in sorted(tool.keys() - {"functionDeclarations"}):
            found.feature("server tool", "tools", key)


def _budget(config: dict[str, Any]) -> int | None:
    """Return the tokens for thoughts; None if there are none, or as many as the model likes."""
    thinking = converted(config.get("thinkingConfig") or {}, _Thinking, "thinkingConfig")
    if thinking.thinkingBudget == -1:
        return None
    values = {"thinkingBudget": thinking.thinkingBudget}
    return next((count for _, count in counts(values, values)), None)
