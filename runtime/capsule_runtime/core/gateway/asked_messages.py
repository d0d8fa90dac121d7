"""Requests of the Messages API.

Tools that the client runs pass; what the provider runs by itself (search, code, computers, other
servers) costs by the use and brings input of any length, so it is named as a feature. So is what is
at the provider already (files, containers), what is fetched from elsewhere, compaction (a call
within the call), and what has a price of its own: a service tier, a speed, a region.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from capsule_runtime.core.gateway.apis import Api
from capsule_runtime.core.gateway.asked import (
    Asked,
    FeatureKind,
    Findings,
    converted,
    counts,
    flag,
    lifetime_of,
    model_name,
    parts_of,
)

HARMLESS = frozenset(
    {
        "model", "messages", "system", "max_tokens", "stream", "temperature", "top_k", "top_p",
        "stop_sequences", "metadata", "tools", "tool_choice", "thinking", "output_config",
        "output_format", "cache_control", "context_management",
    }
)  # fmt: skip
REFUSED: dict[str, tuple[FeatureKind, tuple[object, ...]]] = {
    "container": ("state at the provider", ()),
    "mcp_servers": ("server tool", ([],)),
    "service_tier": ("service tier", ("auto", "standard_only")),
    "speed": ("service tier", ("standard",)),
    "inference_geo": ("service tier", ("global",)),
}
_BETAS = frozenset(
    {
        "claude-code", "oauth", "interleaved-thinking", "fine-grained-tool-streaming",
        "context-management", "prompt-caching", "prompt-caching-scope", "extended-cache-ttl",
        "effort", "structured-outputs", "tool-examples", "advanced-tool-use",
        "token-efficient-tools", "token-counting", "output-128k", "adaptive-thinking",
        "redact-thinking", "pdfs", "task-budgets", "web-search", "fast-mode", "advisor-tool",
        "thinking-token-count", "thinking-display-updates", "per-turn-control",
        "mid-conversation-tool-changes", "mid-conversation-system",
        "mid-conversation-system-clear-at", "inline-tools", "cache-diagnosis",
        "prompt-caching-evict", "compact", "mcp-client", "files-api", "code-execution", "web-fetch", "skills",
        "tool-search-tool", "model-context-window-exceeded",
    }
)  # fmt: skip
"""What only allows what the body then asks for, or changes no price; without their dates.

A longer prompt at another price, another model in place of one that fails: a beta may cost by itself,
so one that is not known here is a feature without a bound.
"""
_DATE = re.compile(r"-20[0-9]{2}-?[0-9]{2}-?[0-9]{2}$")
_OWN_TOOLS = re.compile(r"(?:bash|text_editor|memory)_[0-9]{8}")
_EDITS = re.compile(r"clear_(?:tool_uses|thinking)_[0-9]{8}")
_EDITING = frozenset({"edits"})
_PLAIN_PARTS = frozenset({"text", "tool_use", "search_result", "tool_removal"})


class _Part(Struct):
    type: str = ""
    source: Any = None
    content: Any = None
    signature: str | None = None
    data: str | None = None
    tool_name: str = ""
    tool: Any = None


class _Source(Struct):
    type: str = ""
    data: str = ""
    content: Any = None


class _Added(Struct):
    type: str = ""
    name: str = ""
    definition: Any = None


class _Message(Struct):
    content: Any = None


class _Tool(Struct):
    name: str = ""
    type: str | None = None


class _Thinking(Struct):
    type: str = ""
    budget_tokens: Any = None


class _Edit(Struct):
    type: str = ""


class _Management(Struct):
    edits: list[_Edit] = []


def read_messages(found: Findings, betas: Iterable[str]) -> Asked:
    """Return what a body asks for, sent with *betas* in its header.

    Raises:
        Unreadable: it is no request.
    """
    found.keys(found.values(), HARMLESS, REFUSED)
    for beta in betas:
        if _DATE.sub("", beta) not in _BETAS:
            found.feature("beta", "beta", beta)
    messages = converted(found.value("messages"), list[_Message], "messages")
    tools = converted(found.value("tools") or [], list[Any], "tools")
    for tool in tools:
        _tool(found, tool, "tools")
    for message in messages:
        _parts(found, message.content, "messages")
    _parts(found, found.value("system"), "system")
    _management(found)
    found.pieces += len(messages) + len(tools)
    return Asked(
        Api.MESSAGES,
        model_name(found.value("model")),
        flag(found, "stream"),
        counts(found.values(), ("max_tokens",)),
        _budget(found),
        caches_for=lifetime_of(found),
    )


def _parts(found: Findings, content: Any, where: str) -> None:
    for part in parts_of(content, list[_Part], where):
        found.pieces += 1
        match part.type:
            case "image" | "document":
                _source(found, part, where)
            case "tool_result":
                _parts(found, part.content, where)
            case "thinking" | "redacted_thinking":
                found.opaque(part.signature, part.data)
            case "tool_reference":
                found.reference(part.tool_name, where)
            case "tool_addition":
                _addition(found, converted(part.tool, _Added, where), where)
            case kind if kind in _PLAIN_PARTS:
                pass
            case kind:
                found.feature(_kind_of_part(kind), where, kind)


def _kind_of_part(kind: str) -> FeatureKind:
    if kind == "container_upload":
        return "file at the provider"
    is_of_tool = kind.startswith(("server_tool", "mcp_")) or kind.endswith("_tool_result")
    return "server tool" if is_of_tool else "unknown"


def _source(found: Findings, part: _Part, where: str) -> None:
    source = converted(part.source, _Source, where)
    match part.type, source.type:
        case "image", "base64":
            found.image(source.data)
        case "document", "base64":
            found.document(source.data)
        case "document", "text":
            pass
        case "document", "content":
            _parts(found, source.content, where)
        case _, "url":
            found.feature("remote media", where, f"{part.type}.source.url")
        case _, "file":
            found.feature("file at the provider", where, f"{part.type}.source.file_id")
        case _:
            found.feature("unknown", where, f"{part.type}.source", source.type)


def _addition(found: Findings, added: _Added, where: str) -> None:
    """Note a tool that the conversation adds: by what it is, or by its name."""
    match added.type:
        case "tool_definition":
            _tool(found, added.definition, where)
        case "tool_reference":
            found.reference(added.name, where)
        case kind:
            found.feature("unknown", where, "tool_addition", kind)


def _tool(found: Findings, definition: Any, where: str) -> None:
    tool = converted(definition, _Tool, where)
    kind = tool.type or "custom"
    found.tool(tool.name, definition)
    if _OWN_TOOLS.fullmatch(kind):
        found.described_tools += 1
    elif kind != "custom":
        found.feature("server tool", where, kind)


def _management(found: Findings) -> None:
    given = found.value("context_management")
    if given is None:
        return
    found.keys(
        converted(given, dict[str, Any], "context_management"), _EDITING, {}, "context_management."
    )
    for edit in converted(given, _Management, "context_management").edits:
        if not _EDITS.fullmatch(edit.type):
            found.feature("server tool", "context_management", edit.type)


def _budget(found: Findings) -> int | None:
    if (given := found.value("thinking")) is None:
        return None
    thinking = converted(given, _Thinking, "thinking")
    values = {"budget_tokens": thinking.budget_tokens}
    return next((count for _, count in counts(values, values)), None)
