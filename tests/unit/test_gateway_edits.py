"""What is changed in a body: one of three things, and no other byte."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from capsule_runtime.core.gateway.apis import Api
from capsule_runtime.core.gateway.edits import (
    CapOutput,
    Edit,
    IncludeUsage,
    RenameModel,
    capped,
    edited,
    needs_usage,
)
from capsule_runtime.core.gateway.reading import Request, read_request
from capsule_runtime.core.gateway.routes import Route, find_route

TARGETS = {
    Api.MESSAGES: "/v1/messages",
    Api.CHAT: "/v1/chat/completions",
    Api.RESPONSES: "/v1/responses",
    Api.GENERATE: "/v1beta/models/large:generateContent",
}
BODIES: dict[Api, dict[str, Any]] = {
    Api.MESSAGES: {"model": "large", "messages": []},
    Api.CHAT: {"model": "large", "messages": []},
    Api.RESPONSES: {"model": "large", "input": "hi"},
    Api.GENERATE: {"contents": []},
}
CAPS = {
    Api.MESSAGES: ("max_tokens",),
    Api.CHAT: ("max_completion_tokens",),
    Api.RESPONSES: ("max_output_tokens",),
    Api.GENERATE: ("generationConfig", "maxOutputTokens"),
}


def read(api: Api, body: str | bytes) -> Request:
    route = find_route(api, "POST", TARGETS[api])
    assert isinstance(route, Route)
    found = read_request(route, body if isinstance(body, bytes) else body.encode())
    assert isinstance(found, Request), found
    return found


def test_a_cap_is_put_in_at_the_front() -> None:
    request = read(Api.CHAT, '{ "model":"a" ,\n "messages":[] }')

    assert edited(request, CapOutput(9)) == (
        b'{"max_completion_tokens": 9,  "model":"a" ,\n "messages":[] }'
    )
    assert b'"max_tokens": 9' in edited(request, CapOutput(9, "max_tokens"))


def test_a_cap_is_lowered_where_it_stands() -> None:
    request = read(Api.MESSAGES, '{"model":"a","max_tokens" :  32000 ,"messages":[]}')

    assert edited(request, CapOutput(9)) == b'{"model":"a","max_tokens" :  9 ,"messages":[]}'


def test_a_cap_is_never_raised() -> None:
    body = b'{"model":"a","max_tokens":5,"messages":[]}'

    assert edited(read(Api.MESSAGES, body), CapOutput(9)) == body
    assert capped(read(Api.MESSAGES, body).asked, CapOutput(9)).output_cap == 5


def test_two_caps_are_lowered_both() -> None:
    body = '{"model":"a","max_tokens":50,"max_completion_tokens":60,"messages":[]}'

    assert json.loads(edited(read(Api.CHAT, body), CapOutput(9))) == {
        "model": "a",
        "max_tokens": 9,
        "max_completion_tokens": 9,
        "messages": [],
    }


@pytest.mark.parametrize(
    ("body", "after"),
    [
        ('{"contents":[]}', '{"generationConfig": {"maxOutputTokens": 9}, "contents":[]}'),
        (
            '{"contents":[],"generationConfig":null}',
            '{"contents":[],"generationConfig":{"maxOutputTokens": 9}}',
        ),
        (
            '{"contents":[],"generationConfig":{}}',
            '{"contents":[],"generationConfig":{"maxOutputTokens": 9}}',
        ),
        (
            '{"contents":[],"generation_config":{"top_k":1.50}}',
            '{"contents":[],"generation_config":{"maxOutputTokens": 9, "top_k":1.50}}',
        ),
        (
            '{"contents":[],"generation_config":{"max_output_tokens":50}}',
            '{"contents":[],"generation_config":{"max_output_tokens":9}}',
        ),
    ],
)
def test_a_cap_goes_into_the_configuration_as_it_is_written(body: str, after: str) -> None:
    assert edited(read(Api.GENERATE, body), CapOutput(9)).decode() == after


@pytest.mark.parametrize(
    ("body", "after"),
    [
        (
            '{"stream":true,"model":"a","messages":[]}',
            '{"stream_options": {"include_usage": true}, "stream":true,"model":"a","messages":[]}',
        ),
        (
            '{"stream":true,"stream_options":{"x":1},"model":"a","messages":[]}',
            '{"stream":true,"stream_options":{"include_usage": true, "x":1},'
            '"model":"a","messages":[]}',
        ),
        (
            '{"stream":true,"stream_options":{"include_usage":false},"model":"a","messages":[]}',
            '{"stream":true,"stream_options":{"include_usage":true},"model":"a","messages":[]}',
        ),
        (
            '{"stream":true,"stream_options":null,"model":"a","messages":[]}',
            '{"stream":true,"stream_options":{"include_usage": true},"model":"a","messages":[]}',
        ),
    ],
)
def test_the_usage_of_a_stream_is_asked_for(body: str, after: str) -> None:
    request = read(Api.CHAT, body)

    assert needs_usage(request.asked)
    assert edited(request, IncludeUsage()).decode() == after
    assert not needs_usage(read(Api.CHAT, after).asked)


def test_nobody_asks_twice_or_where_it_is_told_anyhow() -> None:
    asked = '{"stream":true,"stream_options":{"include_usage":true},"model":"a","messages":[]}'
    plain = '{"model":"a","messages":[]}'

    for body in (asked, plain):
        assert not needs_usage(read(Api.CHAT, body).asked)
        assert edited(read(Api.CHAT, body), IncludeUsage()).decode() == body


def test_a_model_is_renamed_where_the_body_names_it() -> None:
    body = '{"messages":[],"model" : "a", "metadata":{"model":"a"}}'
    generate = '{"contents":[]}'

    assert edited(read(Api.MESSAGES, body), RenameModel("b")).decode() == body.replace(
        '"model" : "a"', '"model" : "b"'
    )
    assert edited(read(Api.GENERATE, generate), RenameModel("b")).decode() == generate


KNOWN = {
    key.replace("_", "").casefold()
    for key in (
        "model messages input contents tools functions system stream stream_options max_tokens"
        " max_completion_tokens max_output_tokens generation_config system_instruction thinking"
        " context_management n cached_content tool_config cache_control"
    ).split()
}
REST = st.dictionaries(
    st.text().filter(lambda key: key.replace("_", "").casefold() not in KNOWN),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=8,
    ),
    max_size=5,
)  # fmt: skip


@given(
    st.sampled_from(Api),
    REST,
    st.none() | st.integers(1, 100_000),
    st.integers(1, 100_000),
    st.sampled_from([None, 1, "\t"]),
    st.booleans(),
)
def test_only_the_named_member_differs(
    api: Api,
    rest: dict[str, Any],
    own: int | None,
    cap: int,
    indent: int | str | None,
    ascii_only: bool,
) -> None:
    body: dict[str, Any] = {**rest, **BODIES[api], "stream": True}
    *outer, last = CAPS[api]
    if own is not None:
        body |= {outer[0]: {last: own}} if outer else {last: own}
    if api is Api.GENERATE:
        del body["stream"]
    text = json.dumps(body, indent=indent, ensure_ascii=ascii_only)
    assume(not any(0xD800 <= ord(char) < 0xE000 for char in text))
    route = find_route(api, "POST", TARGETS[api])
    assert isinstance(route, Route)
    request = read_request(route, text.encode())
    assume(isinstance(request, Request))
    assert isinstance(request, Request)
    edits: list[Edit] = [CapOutput(cap), IncludeUsage(), RenameModel("b")]
    after = edited(request, *edits)

    told = json.loads(after)
    wanted = dict(body)
    lowered = cap if own is None else min(own, cap)
    wanted |= {outer[0]: {last: lowered}} if outer else {last: lowered}
    if api is Api.CHAT:
        wanted["stream_options"] = {"include_usage": True}
    if api is not Api.GENERATE:
        wanted["model"] = "b"
    assert told == wanted
    assert [key for key in told if key in body] == list(body)
    again = read_request(route, after)
    assert isinstance(again, Request)
    assert again.asked.caps == capped(request.asked, CapOutput(cap)).caps
    assert again.asked.features == request.asked.features


@given(st.sampled_from(Api), REST)
def test_without_an_edit_not_a_byte_differs(api: Api, rest: dict[str, Any]) -> None:
    text = json.dumps({**rest, **BODIES[api]}, indent=1).encode()
    route = find_route(api, "POST", TARGETS[api])
    assert isinstance(route, Route)
    request = read_request(route, text)
    assume(isinstance(request, Request))
    assert isinstance(request, Request)

    assert edited(request) == text
