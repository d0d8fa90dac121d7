"""What a provider's own counter is asked, and what it answers."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capsule_runtime.core.gateway.apis import Api
from capsule_runtime.core.gateway.counting import Question, count_in, question_of
from capsule_runtime.core.gateway.reading import Request, read_request
from capsule_runtime.core.gateway.routes import Route, find_route


def question(api: Api, target: str, body: str) -> Question | None:
    route = find_route(api, "POST", target)
    assert isinstance(route, Route)
    request = read_request(route, body.encode())
    assert isinstance(request, Request)
    return question_of(route, request)


def test_a_message_is_counted_without_what_counters_refuse() -> None:
    body = '{"max_tokens":9,"messages":[ ],"stream":true,"model":"m","metadata":{},"tools":[]}'
    asked = question(Api.MESSAGES, "/v1/messages?beta=true", body)

    assert asked == Question(
        "/v1/messages/count_tokens", "beta=true", b'{"model":"m","messages":[ ],"tools":[]}'
    )


def test_a_response_is_counted() -> None:
    body = '{"model":"m","input":"hi","stream":true,"store":false}'

    assert question(Api.RESPONSES, "/v1/responses", body) == Question(
        "/v1/responses/input_tokens", "", b'{"model":"m","input":"hi"}'
    )


def test_contents_are_counted_with_all_that_is_beside_them() -> None:
    body = '{"contents":[],"system_instruction":{"parts":[]},"safetySettings":[]}'
    asked = question(Api.GENERATE, "/v1beta/models/m:streamGenerateContent?alt=sse", body)

    assert asked is not None
    assert (asked.path, asked.query) == ("/v1beta/models/m:countTokens", "")
    assert json.loads(asked.body) == {
        "generateContentRequest": {
            "model": "models/m",
            "contents": [],
            "systemInstruction": {"parts": []},
        }
    }
    counted = find_route(Api.GENERATE, "POST", asked.path)
    assert isinstance(counted, Route)
    assert counted.is_free


def test_one_api_has_no_counter() -> None:
    assert question(Api.CHAT, "/v1/chat/completions", '{"model":"m","messages":[]}') is None


@pytest.mark.parametrize(
    ("body", "count"),
    [
        (b'{"input_tokens": 12}', 12),
        (b'{"object":"response.input_tokens","input_tokens":12}', 12),
        (b'{"totalTokens": 12, "cachedContentTokenCount": 3}', 12),
        (b'{"input_tokens": -1}', None),
        (b'{"input_tokens": "12"}', None),
        (b"{}", None),
        (b"[]", None),
        (b"", None),
    ],
)
def test_a_count_is_read(body: bytes, count: int | None) -> None:
    assert count_in(body) == count


@given(st.binary())
def test_whatever_a_counter_answers_is_no_exception(body: bytes) -> None:
    assert count_in(body) is None or isinstance(count_in(body), int)
