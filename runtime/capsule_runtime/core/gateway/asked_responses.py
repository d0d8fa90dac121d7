"""Requests of the Responses API.

Functions, custom tools and shells of the client pass. Features that are named: whatever stands at
the provider (earlier responses, conversations, items, prompts, files), and so cannot be counted
here; tools that the provider runs; work in the background; service tiers; compaction.
"""

from __future__ import annotations

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
from capsule_runtime.core.gateway.asked_chat import image_url, model_features

CAPS = ("max_output_tokens",)
HARMLESS = frozenset(
    {
        *CAPS, "model", "input", "instructions", "stream", "stream_options", "temperature",
        "top_p", "tools", "tool_choice", "parallel_tool_calls", "max_tool_calls", "reasoning",
        "text", "include", "truncation", "store", "metadata", "client_metadata", "user",
        "safety_identifier", "prompt_cache_key", "prompt_cache_retention", "top_logprobs",
        "verbosity",
    }
)  # fmt: skip
REFUSED: dict[str, tuple[FeatureKind, tuple[object, ...]]] = {
    "previous_response_id": ("state at the provider", ()),
    "conversation": ("state at the provider", ()),
    "prompt": ("state at the provider", ()),
    "background": ("background", (False,)),
    "service_tier": ("service tier", ("auto", "default", "standard")),
    "context_management": ("server tool", ([],)),
    "modalities": ("media", (["text"],)),
}
_OWN_TOOLS = frozenset({"function", "custom"})
_DESCRIBED = frozenset({"local_shell", "apply_patch"})
_OWN_ITEMS = frozenset(
    {
        "function_call", "custom_tool_call", "local_shell_call", "local_shell_call_output",
        "shell_call", "shell_call_output", "apply_patch_call", "apply_patch_call_output",
    }
)  # fmt: skip
_OUTPUTS = frozenset({"function_call_output", "custom_tool_call_output"})
_TEXTS = frozenset(
    {"input_text", "output_text", "text", "refusal", "summary_text", "reasoning_text"}
)
_SERVED = ("web_search", "file_search", "code_interpreter", "image_generation", "computer", "mcp")


class _Part(Struct):
    type: str = ""
    image_url: str | None = None
    file_id: str | None = None
    file_url: str | None = None
    file_data: str | None = None


class _Item(Struct):
    type: str | None = None
    id: str | None = None
    content: Any = None
    output: Any = None
    encrypted_content: str | None = None


class _Environment(Struct):
    type: str = ""


class _Tool(Struct):
    type: str = ""
    tools: list[_Tool] = []
    environment: _Environment | None = None


def read_responses(found: Findings) -> Asked:
    """Return what a body asks for.

    Raises:
        Unreadable: it is no request.
    """
    found.keys(found.values(), HARMLESS, REFUSED)
    for item in parts_of(found.value("input"), list[_Item], "input"):
        _item(found, item)
    _tools(found, converted(found.value("tools") or [], list[_Tool], "tools"))
    model = model_name(found.value("model"))
    model_features(found, model)
    return Asked(
        Api.RESPONSES,
        model,
        flag(found, "stream"),
        counts(found.values(), CAPS),
        caches_for=lifetime_of(found),
    )


def _item(found: Findings, item: _Item) -> None:
    found.pieces += 1
    # Without a type, what says nothing is a reference to what the provider has.
    match item.type or ("item_reference" if item.content is None else "message"):
        case "message":
            _content(found, item.content)
        case "reasoning":
            _reasoning(found, item)
        case kind if kind in _OUTPUTS:
            _content(found, item.output)
        case kind if kind in _OWN_ITEMS:
            pass
        case "item_reference":
            found.feature("state at the provider", "input item_reference")
        case kind:
            is_served = kind.startswith(_SERVED)
            found.feature("server tool" if is_served else "unknown", "input", kind)


def _reasoning(found: Findings, item: _Item) -> None:
    """Note thoughts of before: those that only have an id are read from the provider's store."""
    if item.encrypted_content:
        found.opaque(item.encrypted_content)
    elif item.id:
        found.feature("state at the provider", "input reasoning.id")
    _content(found, item.content)


def _content(found: Findings, content: Any) -> None:
    for part in parts_of(content, list[_Part], "input"):
        found.pieces += 1
        match part.type:
            case kind if kind in _TEXTS:
                pass
            case "input_image" if part.file_id is None and part.image_url:
                image_url(found, part.image_url, "input")
            case "input_file" if part.file_id is None and part.file_url is None:
                found.document((part.file_data or "").partition(",")[2])
            case "input_image" | "input_file" if part.file_id is not None:
                found.feature("file at the provider", "input", f"{part.type}.file_id")
            case "input_file":
                found.feature("remote media", "input", "input_file.file_url")
            case "input_audio":
                found.feature("media", "input", "input_audio")
            case kind:
                found.feature("unknown", "input", kind)


def _tools(found: Findings, tools: list[_Tool]) -> None:
    for tool in tools:
        found.pieces += 1
        if tool.type == "namespace":
            _tools(found, tool.tools)
        elif tool.type in _DESCRIBED or _is_own_shell(tool):
            found.described_tools += 1
        elif tool.type not in _OWN_TOOLS:
            found.feature("server tool", "tools", tool.type)


def _is_own_shell(tool: _Tool) -> bool:
    """Whether *tool* is a shell of the client, and not one in a container of the provider."""
    return tool.type == "shell" and tool.environment == _Environment("local")
