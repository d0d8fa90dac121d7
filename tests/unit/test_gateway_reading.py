"""What a request asks for: every feature without a bound is found, by its name."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capsule_runtime.core.gateway.apis import Api
from capsule_runtime.core.gateway.asked import Asked
from capsule_runtime.core.gateway.json_text import Malformed, TooLarge
from capsule_runtime.core.gateway.reading import Request, read_request
from capsule_runtime.core.gateway.routes import Route, find_route

Json = dict[str, Any]
TARGETS = {
    Api.MESSAGES: "/v1/messages",
    Api.CHAT: "/v1/chat/completions",
    Api.RESPONSES: "/v1/responses",
    Api.GENERATE: "/v1beta/models/large:streamGenerateContent?alt=sse",
}
PLAIN: dict[Api, Json] = {
    Api.MESSAGES: {
        "model": "large",
        "max_tokens": 32_000,
        "messages": [{"role": "user", "content": "hi"}],
    },
    Api.CHAT: {"model": "large", "messages": [{"role": "user", "content": "hi"}]},
    Api.RESPONSES: {"model": "large", "input": "hi"},
    Api.GENERATE: {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]},
}
PNG = base64.b64encode(
    b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + (640).to_bytes(4, "big") + (480).to_bytes(4, "big")
).decode()


def route_of(api: Api) -> Route:
    route = find_route(api, "POST", TARGETS[api])
    assert isinstance(route, Route)
    return route


def read(api: Api, body: object, *betas: str) -> Request | Malformed | TooLarge:
    return read_request(route_of(api), json.dumps(body).encode(), betas)


def asked(api: Api, *betas: str, **more: object) -> Asked:
    found = read(api, {**PLAIN[api], **more}, *betas)
    assert isinstance(found, Request), found
    return found.asked


def says(*parts: object) -> list[Json]:
    """Return messages of one that has *parts*."""
    return [{"role": "user", "content": list(parts)}]


def contents(*parts: object) -> list[Json]:
    return [{"role": "user", "parts": list(parts)}]


REFUSED: list[tuple[Api, Json, str]] = [
    (Api.MESSAGES, {"container": "c_1"}, "container"),
    (Api.MESSAGES, {"mcp_servers": [{"url": "https://x"}]}, "mcp_servers"),
    (Api.MESSAGES, {"service_tier": "priority"}, "service_tier"),
    (Api.MESSAGES, {"speed": "fast"}, "speed"),
    (Api.MESSAGES, {"inference_geo": "us"}, "inference_geo"),
    (Api.MESSAGES, {"brand_new": 1}, "brand_new"),
    (Api.MESSAGES, {"tools": [{"type": "web_search_20250305"}]}, "tools web_search_20250305"),
    (Api.MESSAGES, {"tools": [{"type": "web_fetch_20250910"}]}, "tools web_fetch_20250910"),
    (
        Api.MESSAGES,
        {"tools": [{"type": "code_execution_20250825"}]},
        "tools code_execution_20250825",
    ),
    (Api.MESSAGES, {"tools": [{"type": "computer_20250124"}]}, "tools computer_20250124"),
    (Api.MESSAGES, {"tools": [{"type": "mcp_toolset"}]}, "tools mcp_toolset"),
    (Api.MESSAGES, {"tools": [{"type": "bash_20250124x"}]}, "tools bash_20250124x"),
    (
        Api.MESSAGES,
        {"messages": says({"type": "image", "source": {"type": "url", "url": "https://x"}})},
        "messages image.source.url",
    ),
    (
        Api.MESSAGES,
        {"messages": says({"type": "document", "source": {"type": "file", "file_id": "f"}})},
        "messages document.source.file_id",
    ),
    (
        Api.MESSAGES,
        {
            "messages": says(
                {
                    "type": "tool_result",
                    "content": [{"type": "image", "source": {"type": "url", "url": "https://x"}}],
                }
            )
        },
        "messages image.source.url",
    ),
    (Api.MESSAGES, {"messages": says({"type": "container_upload"})}, "messages container_upload"),
    (Api.MESSAGES, {"messages": says({"type": "server_tool_use"})}, "messages server_tool_use"),
    (Api.MESSAGES, {"messages": says({"type": "compaction"})}, "messages compaction"),
    (
        Api.MESSAGES,
        {"context_management": {"edits": [{"type": "compact_20260112"}]}},
        "context_management compact_20260112",
    ),
    (Api.MESSAGES, {"context_management": {"other": 1}}, "context_management.other"),
    (
        Api.MESSAGES,
        {"messages": says({"type": "tool_reference", "tool_name": "f"})},
        "messages tool_reference f",
    ),
    (
        Api.MESSAGES,
        {
            "messages": says(
                {
                    "type": "tool_addition",
                    "tool": {
                        "type": "tool_definition",
                        "definition": {"type": "web_search_20250305"},
                    },
                }
            )
        },
        "messages web_search_20250305",
    ),
    (Api.CHAT, {"enable_thinking": True}, "enable_thinking"),
    (Api.CHAT, {"thinking_budget": 9}, "thinking_budget"),
    (Api.CHAT, {"thinking": {"type": "enabled"}}, "thinking"),
    (Api.CHAT, {"n": 2}, "n 2"),
    (Api.CHAT, {"service_tier": "flex"}, "service_tier"),
    (Api.CHAT, {"service_tier": "priority"}, "service_tier"),
    (Api.CHAT, {"web_search_options": {}}, "web_search_options"),
    (Api.CHAT, {"modalities": ["text", "audio"]}, "modalities"),
    (Api.CHAT, {"audio": {"voice": "a"}}, "audio"),
    (Api.CHAT, {"prediction": {"type": "content"}}, "prediction"),
    (Api.CHAT, {"plugins": [{"id": "web"}]}, "plugins"),
    (Api.CHAT, {"models": ["a", "b"]}, "models"),
    (Api.CHAT, {"model": "large-search-preview"}, "model large-search-preview"),
    (Api.CHAT, {"model": "a/large:online"}, "model a/large:online"),
    (Api.CHAT, {"tools": [{"type": "web_search"}]}, "tools web_search"),
    (
        Api.CHAT,
        {"messages": says({"type": "image_url", "image_url": {"url": "https://x/y.png"}})},
        "messages image_url",
    ),
    (
        Api.CHAT,
        {"messages": says({"type": "image_url", "image_url": "https://x/y.png"})},
        "messages image_url",
    ),
    (Api.CHAT, {"messages": says({"type": "file", "file": {"file_id": "f"}})}, "messages file"),
    (Api.CHAT, {"messages": says({"type": "input_audio"})}, "messages input_audio"),
    (Api.CHAT, {"messages": [{"role": "assistant", "audio": {"id": "a"}}]}, "messages audio"),
    (Api.RESPONSES, {"previous_response_id": "resp_1"}, "previous_response_id"),
    (Api.RESPONSES, {"conversation": "conv_1"}, "conversation"),
    (Api.RESPONSES, {"prompt": {"id": "p"}}, "prompt"),
    (Api.RESPONSES, {"background": True}, "background"),
    (Api.RESPONSES, {"service_tier": "flex"}, "service_tier"),
    (Api.RESPONSES, {"context_management": [{"type": "compaction"}]}, "context_management"),
    *(
        (Api.RESPONSES, {"tools": [{"type": kind}]}, f"tools {kind}")
        for kind in (
            "web_search",
            "web_search_preview",
            "file_search",
            "code_interpreter",
            "image_generation",
            "computer_use_preview",
            "mcp",
            "shell",
            "brand_new",
        )
    ),
    (
        Api.RESPONSES,
        {"tools": [{"type": "shell", "environment": {"type": "container_auto"}}]},
        "tools shell",
    ),
    (
        Api.RESPONSES,
        {"tools": [{"type": "namespace", "tools": [{"type": "web_search"}]}]},
        "tools web_search",
    ),
    (
        Api.RESPONSES,
        {"input": [{"type": "item_reference", "id": "msg_1"}]},
        "input item_reference",
    ),
    (Api.RESPONSES, {"input": [{"id": "msg_1"}]}, "input item_reference"),
    (Api.RESPONSES, {"input": [{"type": None, "id": "msg_1"}]}, "input item_reference"),
    (
        Api.RESPONSES,
        {"input": [{"type": "reasoning", "id": "rs_1", "summary": []}]},
        "input reasoning.id",
    ),
    (Api.RESPONSES, {"input": [{"type": "web_search_call"}]}, "input web_search_call"),
    (
        Api.RESPONSES,
        {"input": says({"type": "input_image", "file_id": "f"})},
        "input input_image.file_id",
    ),
    (
        Api.RESPONSES,
        {"input": says({"type": "input_image", "image_url": "https://x"})},
        "input image_url",
    ),
    (
        Api.RESPONSES,
        {"input": says({"type": "input_file", "file_url": "https://x"})},
        "input input_file.file_url",
    ),
    (
        Api.RESPONSES,
        {
            "input": [
                {
                    "type": "function_call_output",
                    "output": [{"type": "input_image", "file_id": "f"}],
                }
            ]
        },
        "input input_image.file_id",
    ),
    (Api.GENERATE, {"cachedContent": "cachedContents/1"}, "cachedContent"),
    (Api.GENERATE, {"cached_content": "cachedContents/1"}, "cachedContent"),
    (Api.GENERATE, {"serviceTier": "flex"}, "serviceTier"),
    (Api.GENERATE, {"brandNew": 1}, "brandNew"),
    *(
        (Api.GENERATE, {"tools": [{kind: {}}]}, f"tools {kind}")
        for kind in (
            "googleSearch",
            "googleSearchRetrieval",
            "codeExecution",
            "urlContext",
            "computerUse",
            "fileSearch",
            "googleMaps",
            "brandNew",
        )
    ),
    (Api.GENERATE, {"tools": [{"google_search": {}}]}, "tools googleSearch"),
    (Api.GENERATE, {"generationConfig": {"candidateCount": 2}}, "candidateCount 2"),
    (
        Api.GENERATE,
        {"generation_config": {"response_modalities": ["IMAGE"]}},
        "generationConfig.responseModalities",
    ),
    (Api.GENERATE, {"generationConfig": {"speechConfig": {}}}, "generationConfig.speechConfig"),
    (Api.GENERATE, {"generationConfig": {"brandNew": 1}}, "generationConfig.brandNew"),
    (
        Api.GENERATE,
        {"contents": contents({"fileData": {"fileUri": "https://x"}})},
        "contents fileData",
    ),
    (
        Api.GENERATE,
        {"contents": contents({"file_data": {"file_uri": "https://x"}})},
        "contents fileData",
    ),
    (
        Api.GENERATE,
        {"contents": contents({"inlineData": {"mimeType": "video/mp4", "data": ""}})},
        "contents video/mp4",
    ),
    (
        Api.GENERATE,
        {
            "contents": contents(
                {"functionResponse": {"name": "f", "parts": [{"fileData": {"fileUri": "x"}}]}}
            )
        },
        "contents fileData",
    ),
]


@pytest.mark.parametrize(("api", "more", "name"), REFUSED)
def test_what_has_no_bound_is_found_by_its_name(api: Api, more: Json, name: str) -> None:
    assert [feature.name for feature in asked(api, **more).features] == [name]


ORDINARY: list[tuple[Api, Json]] = [
    (
        Api.MESSAGES,
        {
            "system": [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}],
            "tools": [
                {"name": "f", "input_schema": {}},
                {"type": "bash_20250124", "name": "bash"},
            ],
            "thinking": {"type": "adaptive", "display": "updates"},
            "context_management": {"edits": [{"type": "clear_thinking_20251015"}]},
            "service_tier": "auto",
            "container": None,
            "metadata": {"user_id": "u"},
            "output_config": {"effort": "medium"},
        },
    ),
    (
        Api.CHAT,
        {
            "n": 1,
            "service_tier": "default",
            "tools": [{"type": "function", "function": {"name": "f"}}],
            "modalities": ["text"],
            "prediction": None,
            "reasoning_effort": "low",
        },
    ),
    (
        Api.RESPONSES,
        {
            "store": False,
            "background": False,
            "previous_response_id": None,
            "tools": [
                {"type": "function", "name": "f"},
                {"type": "shell", "environment": {"type": "local"}},
                {"type": "namespace", "name": "n", "tools": [{"type": "function"}]},
            ],
            "include": ["reasoning.encrypted_content"],
            "input": [
                {"role": "user", "content": "hi"},
                {"type": "reasoning", "id": "rs_1", "encrypted_content": "abcd"},
                {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c", "output": "1"},
            ],
        },
    ),
    (
        Api.GENERATE,
        {
            "system_instruction": {"parts": [{"text": "x"}]},
            "tools": [{"function_declarations": [{"name": "f"}]}],
            "generationConfig": {"candidateCount": 1, "thinkingConfig": {"thinkingBudget": -1}},
        },
    ),
]


@pytest.mark.parametrize(("api", "more"), ORDINARY)
def test_an_ordinary_request_has_no_feature_without_a_bound(api: Api, more: Json) -> None:
    assert asked(api, **more).features == ()


def test_what_is_true_is_not_one() -> None:
    """A value that asks for nothing is of its own type: 0 is not false."""
    assert [feature.name for feature in asked(Api.CHAT, background=0).features] == ["background"]


@pytest.mark.parametrize(
    ("beta", "names"),
    [
        ("claude-code-20250219", []),
        ("interleaved-thinking-2025-05-14", []),
        ("context-1m-2025-08-07", ["beta context-1m-2025-08-07"]),
        ("brand-new-2030-01-01", ["beta brand-new-2030-01-01"]),
    ],
)
def test_a_beta_is_known_or_named(beta: str, names: list[str]) -> None:
    assert [feature.name for feature in asked(Api.MESSAGES, beta).features] == names


def test_the_cap_and_the_budget_are_read() -> None:
    messages = asked(Api.MESSAGES, thinking={"type": "enabled", "budget_tokens": 2_000})
    chat = asked(Api.CHAT, max_tokens=5, max_completion_tokens=7)
    responses = asked(Api.RESPONSES, max_output_tokens=9)
    thinking = {"maxOutputTokens": 11, "thinkingConfig": {"thinkingBudget": 3}}
    generate = asked(Api.GENERATE, generationConfig=thinking)

    assert (messages.output_cap, messages.thinking_budget) == (32_000, 2_000)
    assert chat.output_cap == 7
    assert responses.output_cap == 9
    assert (generate.output_cap, generate.thinking_budget) == (11, 3)
    assert asked(Api.CHAT).output_cap is None


def test_streams_and_models_are_read_where_they_are_told() -> None:
    assert asked(Api.CHAT, stream=True).streams
    assert not asked(Api.CHAT, stream=None).streams
    assert asked(Api.GENERATE).streams
    assert asked(Api.GENERATE).model == "large"
    assert asked(Api.GENERATE, model="models/large").model == "large"
    assert asked(Api.CHAT, stream=True, stream_options={"include_usage": True}).wants_usage


@pytest.mark.parametrize(
    ("control", "lifetime"),
    [
        ({"type": "ephemeral"}, "minutes"),
        ({"type": "ephemeral", "ttl": "5m"}, "minutes"),
        ({"type": "ephemeral", "ttl": "1h"}, "hour"),
        ({"type": "ephemeral", "ttl": 3600}, "hour"),
        (None, "none"),
    ],
)
def test_the_longest_lifetime_in_the_cache_is_read(control: object, lifetime: str) -> None:
    part = {"type": "text", "text": "x", "cache_control": control}

    assert asked(Api.MESSAGES, messages=says(part)).caches_for == lifetime
    assert (
        asked(Api.MESSAGES, tools=[{"name": "f", "cache_control": control}]).caches_for == lifetime
    )


def test_a_long_text_is_never_bounded_below_what_a_tokenizer_sees() -> None:
    words = "\ufdfa" * 65_536 * 18
    found = asked(Api.CHAT, messages=[{"role": "user", "content": words}])

    assert found.text_bytes >= 33 * len(words)


def test_media_in_the_body_are_told_apart_from_its_text() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
    page = {"type": "document", "source": {"type": "base64", "data": "A" * 4_000}}
    found = asked(Api.MESSAGES, messages=says({"type": "tool_result", "content": [image]}, page))

    assert [(one.kind, one.chars) for one in found.media] == [
        ("image", len(PNG)),
        ("document", 4_000),
    ]
    assert (found.media[0].width, found.media[0].height) == (640, 480)
    assert found.text_bytes < 300


def test_a_tool_that_is_referred_to_counts_once_more_each_time() -> None:
    tool = {"name": "f", "input_schema": {"x": "y" * 1_000}, "defer_loading": True}
    reference = {"type": "tool_reference", "tool_name": "f"}
    added = {"type": "tool_addition", "tool": {"type": "tool_reference", "name": "f"}}
    plain = asked(Api.MESSAGES, tools=[tool], messages=says())
    result = {"type": "tool_result", "content": [reference, reference]}
    found = asked(Api.MESSAGES, tools=[tool], messages=says(result, added))

    assert found.features == ()
    assert found.text_bytes >= plain.text_bytes + 3 * 2 * 1_000


def test_what_only_the_provider_can_read_is_told_apart() -> None:
    thoughts = says({"type": "thinking", "thinking": "x", "signature": "a" * 100})
    hidden = says({"type": "redacted_thinking", "data": "a" * 100})
    items = [{"type": "reasoning", "encrypted_content": "a" * 100}]
    parts = contents({"text": "x", "thoughtSignature": "a" * 100})

    assert asked(Api.MESSAGES, messages=thoughts).opaque_bytes == 100
    assert asked(Api.MESSAGES, messages=hidden).opaque_bytes == 100
    assert asked(Api.RESPONSES, input=items).opaque_bytes == 100
    assert asked(Api.GENERATE, contents=parts).opaque_bytes == 100


def test_what_a_tokenizer_may_make_longer_is_counted_so() -> None:
    ligature = "\ufdfa"  # three bytes, and 33 after NFKC
    found = asked(Api.CHAT, messages=[{"role": "user", "content": ligature * 100}])

    assert found.text_bytes > 3_300


@pytest.mark.parametrize(
    ("api", "body"),
    [
        (Api.MESSAGES, {}),
        (Api.MESSAGES, {"model": "m"}),
        (Api.MESSAGES, {**PLAIN[Api.MESSAGES], "model": ""}),
        (Api.MESSAGES, {**PLAIN[Api.MESSAGES], "model": "a\nb"}),
        (Api.MESSAGES, {**PLAIN[Api.MESSAGES], "model": " a"}),
        (Api.MESSAGES, {**PLAIN[Api.MESSAGES], "model": "\ud800"}),
        (Api.MESSAGES, {**PLAIN[Api.MESSAGES], "max_tokens": "9"}),
        (Api.MESSAGES, {**PLAIN[Api.MESSAGES], "max_tokens": 9.0}),
        (Api.MESSAGES, {**PLAIN[Api.MESSAGES], "max_tokens": True}),
        (Api.MESSAGES, {**PLAIN[Api.MESSAGES], "max_tokens": -1}),
        (Api.MESSAGES, {**PLAIN[Api.MESSAGES], "max_tokens": 10**12}),
        (Api.MESSAGES, {**PLAIN[Api.MESSAGES], "Max_Tokens": 9}),
        (Api.MESSAGES, {**PLAIN[Api.MESSAGES], "maxTokens": 9}),
        (Api.MESSAGES, {**PLAIN[Api.MESSAGES], "stream": 1}),
        (Api.MESSAGES, {**PLAIN[Api.MESSAGES], "messages": "hi"}),
        (Api.MESSAGES, {**PLAIN[Api.MESSAGES], "tools": {}} | {"tools": {"a": 1}}),
        (Api.CHAT, {**PLAIN[Api.CHAT], "n": 0}),
        (Api.CHAT, {**PLAIN[Api.CHAT], "n": 1.5}),
        (Api.CHAT, {**PLAIN[Api.CHAT], "stream_options": []} | {"stream_options": [1]}),
        (Api.GENERATE, {**PLAIN[Api.GENERATE], "model": "models/other"}),
        (Api.GENERATE, {**PLAIN[Api.GENERATE], "cached_content": "a", "cachedContent": "b"}),
        (
            Api.GENERATE,
            {
                **PLAIN[Api.GENERATE],
                "generationConfig": {"maxOutputTokens": 1, "max_output_tokens": 2},
            },
        ),
    ],
)
def test_what_is_no_request_is_malformed(api: Api, body: Json) -> None:
    assert isinstance(read(api, body), Malformed)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 10**7) | st.sampled_from(["text", "", "base64"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "type",
                    "content",
                    "source",
                    "parts",
                    "data",
                    "inlineData",
                    "tools",
                    "output",
                    "url",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=16,
)
KEYS = [
    "messages",
    "input",
    "contents",
    "tools",
    "system",
    "thinking",
    "generationConfig",
    "stream",
]


@given(st.sampled_from(Api), st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=4))
def test_whatever_a_body_has_there_is_an_answer(api: Api, more: Json) -> None:
    assert isinstance(read(api, {**PLAIN[api], **more}), Request | Malformed)


@given(st.sampled_from(Api), st.binary(max_size=80))
def test_whatever_the_bytes_are_there_is_an_answer(api: Api, body: bytes) -> None:
    assert isinstance(read_request(route_of(api), body), Request | Malformed)


@pytest.mark.parametrize("depth", range(10, 1_000, 45))
def test_a_body_that_is_nested_without_end_is_no_exception(depth: int) -> None:
    deep = b'{"type":"tool_result","content":[' * depth + b'"\\u00e9"' + b"]}" * depth
    body = b'{"model":"m","max_tokens":1,"messages":[' + deep + b"]}"

    assert isinstance(read_request(route_of(Api.MESSAGES), body), Request | Malformed)
