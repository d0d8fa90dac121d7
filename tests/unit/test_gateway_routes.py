"""Which requests the gateway has a way for, and how a target is read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capsule_runtime.core.gateway.apis import Api
from capsule_runtime.core.gateway.routes import NoRoute, Route, find_route

CALLS = [
    (Api.MESSAGES, "/v1/messages?beta=true", "/v1/messages?beta=true"),
    (Api.CHAT, "/v1/chat/completions", "/v1/chat/completions"),
    (Api.CHAT, "/chat/completions", "/chat/completions"),
    (Api.RESPONSES, "/v1/responses", "/v1/responses"),
    (
        Api.GENERATE,
        "/v1beta/models/g-2.5:streamGenerateContent?alt=sse",
        "/v1beta/models/g-2.5:streamGenerateContent?alt=sse",
    ),
    (Api.GENERATE, "/v1/models/g:generateContent?key=marker", "/v1/models/g:generateContent"),
]
FREE = [
    (Api.MESSAGES, "POST", "/v1/messages/count_tokens?beta=true"),
    (Api.MESSAGES, "GET", "/v1/models?limit=1000"),
    (Api.CHAT, "GET", "/v1/models"),
    (Api.RESPONSES, "POST", "/v1/responses/input_tokens"),
    (Api.RESPONSES, "GET", "/models?client_version=0.63.0"),
    (Api.GENERATE, "POST", "/v1beta/models/g-2.5:countTokens"),
    (Api.GENERATE, "GET", "/v1beta/models/g-2.5"),
]
REFUSED = [
    "http://elsewhere/v1/messages",
    "//elsewhere/v1/messages",
    "*",
    "elsewhere:443",
    "",
    "/",
    "/V1/messages",
    "/v1/Messages",
    "/v1//messages",
    "/v1/messages/",
    "/v1/./messages",
    "/v1/x/../messages",
    "/v1/..",
    "/v1/%6dessages",
    "/v1/messages%2Fcount_tokens",
    "/v1/messages;a=b",
    "/v1\\messages",
    "/v1/messages#a",
    "/v1/messages?",
    "/v1/messages?beta=true&beta=true",
    "/v1/messages?beta",
    "/v1/messages?beta=%74rue",
    "/v1/messages?other=1",
    "/v1/messages?beta=true;a=b",
    "/v1/messages ",
    "/v1/messages\r\nx: y",
    "/v1/messages/batches",
    "/v1/messages\u0130",
    "/v1/files",
    "/v1/complete",
    "/v1/messages/count_tokens/x",
    "/v1/" + "a" * 2000,
]


@pytest.mark.parametrize(("api", "target", "sent"), CALLS)
def test_a_model_is_called_where_it_is_published(api: Api, target: str, sent: str) -> None:
    route = find_route(api, "POST", target)

    assert isinstance(route, Route)
    assert (route.kind, route.target) == ("call", sent)
    assert not route.is_free


@pytest.mark.parametrize(("api", "method", "target"), FREE)
def test_counting_and_listing_are_free(api: Api, method: str, target: str) -> None:
    route = find_route(api, method, target)

    assert isinstance(route, Route)
    assert route.is_free


@pytest.mark.parametrize("target", REFUSED)
def test_all_else_is_refused(target: str) -> None:
    assert isinstance(find_route(Api.MESSAGES, "POST", target), NoRoute)


@pytest.mark.parametrize(
    ("api", "target"),
    [
        (Api.RESPONSES, "/v1/responses/compact"),
        (Api.RESPONSES, "/v1/responses/resp_1/cancel"),
        (Api.CHAT, "/v1/completions"),
        (Api.CHAT, "/v1/embeddings"),
        (Api.GENERATE, "/v1beta/models/g:batchGenerateContent"),
        (Api.GENERATE, "/v1beta/cachedContents"),
        (Api.GENERATE, "/v1beta/models/../x:generateContent"),
        (Api.GENERATE, "/v1beta/models/g%3AgenerateContent"),
        (Api.GENERATE, "/v1beta/tunedModels/g:generateContent"),
    ],
)
def test_what_else_a_provider_sells_is_refused(api: Api, target: str) -> None:
    assert isinstance(find_route(api, "POST", target), NoRoute)


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "OPTIONS", "post", "CONNECT"])
def test_another_method_is_refused_as_such(method: str) -> None:
    assert find_route(Api.MESSAGES, method, "/v1/messages") == NoRoute(
        "only POST is served at this path", 405
    )


def test_a_stream_is_served_as_events_only() -> None:
    target = "/v1beta/models/g:streamGenerateContent"

    assert isinstance(find_route(Api.GENERATE, "POST", target), NoRoute)
    assert isinstance(find_route(Api.GENERATE, "POST", f"{target}?alt=json"), NoRoute)
    assert isinstance(
        find_route(Api.GENERATE, "POST", "/v1beta/models/g:generateContent?alt=sse"), NoRoute
    )


def test_a_base_path_is_left_out_and_must_be_there() -> None:
    found = find_route(Api.MESSAGES, "POST", "/a/b/v1/messages", base="/a/b")

    assert isinstance(found, Route)
    assert found.path == "/v1/messages"
    assert isinstance(find_route(Api.MESSAGES, "POST", "/v1/messages", base="/a/b"), NoRoute)
    assert isinstance(find_route(Api.MESSAGES, "POST", "/a/bv1/messages", base="/a/b"), NoRoute)


def test_the_path_tells_the_model_where_it_does() -> None:
    route = find_route(Api.GENERATE, "POST", "/v1beta/models/g-1:streamGenerateContent?alt=sse")

    assert isinstance(route, Route)
    assert (route.model, route.streams) == ("g-1", True)
    renamed = route.renamed("g-2")
    assert renamed.target == "/v1beta/models/g-2:streamGenerateContent?alt=sse"
    with pytest.raises(ValueError, match="cannot stand in a path"):
        route.renamed("a/b")


@given(st.sampled_from(Api), st.text(), st.text())
def test_whatever_comes_has_an_answer(api: Api, method: str, target: str) -> None:
    assert isinstance(find_route(api, method, target), Route | NoRoute)


@given(st.sampled_from(Api), st.text(alphabet="/v1messag.%?=&:bet~", max_size=24))
def test_what_is_sent_was_understood_as_it_stands(api: Api, tail: str) -> None:
    """A path that is served is, but for what is dropped from its query, that which came."""
    route = find_route(api, "POST", f"/v1/messages{tail}")

    if isinstance(route, Route):
        assert f"/v1/messages{tail}".startswith(route.path)
        assert "%" not in route.target and ".." not in route.path and "//" not in route.path
