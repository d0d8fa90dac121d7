"""What a call used, read from its answer: to the token, from every shape and any chunks."""

from __future__ import annotations

import json
from time import perf_counter
from typing import Any

import pytest
from genai_prices import extract_usage
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict, replace

from capsule_runtime.core.calls import CallUsage, call_of
from capsule_runtime.core.gateway import settling
from capsule_runtime.core.gateway.apis import Api
from capsule_runtime.core.gateway.bounds import Worst
from capsule_runtime.core.gateway.settling import (
    Charge,
    Meter,
    Told,
    charge_of,
    report_of,
    with_lifetimes,
)
from capsule_runtime.core.money import FREE, Cost
from capsule_runtime.core.prices import Price, Rate
from support.mock_llm.anthropic import Anthropic
from support.mock_llm.dialect import Dialect, Event
from support.mock_llm.google import Google
from support.mock_llm.openai_chat import OpenAIChat
from support.mock_llm.openai_responses import OpenAIResponses
from support.mock_llm.plan import Answer, Asked, Call, Say, Served, Think

MODEL = "acme:large"
DIALECTS: dict[Api, Dialect] = {
    Api.MESSAGES: Anthropic(),
    Api.CHAT: OpenAIChat(),
    Api.RESPONSES: OpenAIResponses(),
    Api.GENERATE: Google(),
}
ASKED = Asked("large", [("user", "hi")], {}, True)
ANSWER = Answer("plain", (Think("hm"), Say("Hello \u2028 \r there"), Call("f", {"a": "b"})), "tool")
SERVED = Served(3)
APIS = pytest.mark.parametrize("api", list(Api))


def stream_of(api: Api) -> bytes:
    """Return the answer as its provider streams it."""
    blocks: list[bytes] = []
    for said in DIALECTS[api].stream(ASKED, ANSWER, SERVED):
        if isinstance(said, Event):
            name = f"event: {said.name}\n" if said.name else ""
            data = said.data if isinstance(said.data, str) else json.dumps(said.data)
            blocks.append(f"{name}data: {data}\n\n".encode())
    return b"".join(blocks)


def meter(api: Api, **more: Any) -> Meter:
    return Meter(api, MODEL, **more)


def told(api: Api, *chunks: bytes, is_cut: bool = False, **more: Any) -> Told:
    """Return what an answer of *chunks* tells, all of which is passed on."""
    one = meter(api, **more)
    passed = b"".join(one.feed(chunk) for chunk in chunks)
    rest, found = one.close(is_cut=is_cut)
    assert passed + rest == b"".join(chunks)
    return found


def counts(usage: CallUsage | None) -> dict[str, int]:
    assert usage is not None
    assert usage.model == MODEL
    return {
        key: value
        for key, value in asdict(usage).items()
        if key.endswith("_tokens") and value is not None
    }


@APIS
def test_a_stream_is_counted_to_the_token(api: Api) -> None:
    found = told(api, stream_of(api))

    assert (found.status, found.is_final) == ("ok", True)
    assert counts(found.usage) == DIALECTS[api].usage(SERVED)


@APIS
def test_a_document_is_counted_to_the_token(api: Api) -> None:
    document = json.dumps(DIALECTS[api].whole(ASKED, ANSWER, SERVED)).encode()
    found = told(api, document[:100], document[100:], is_stream=False)

    assert (found.status, found.is_final) == ("ok", True)
    assert counts(found.usage) == DIALECTS[api].usage(SERVED)


@APIS
@pytest.mark.parametrize("swallows", [False, True])
def test_where_a_stream_is_cut_into_chunks_changes_nothing(api: Api, swallows: bool) -> None:
    stream = stream_of(api)
    whole = meter(api, swallows=swallows)
    passed = whole.feed(stream)
    rest, found = whole.close()

    for cut in range(0, len(stream), 7):
        again = meter(api, swallows=swallows)
        pieces = again.feed(stream[:cut]) + again.feed(stream[cut:])
        last, same = again.close()
        assert (pieces + last, same) == (passed + rest, found)


@APIS
def test_a_stream_that_is_cut_at_any_byte_is_never_taken_for_whole(api: Api) -> None:
    """Unless all of its usage had come: then no more is missing than the provider's good-bye."""
    stream, whole = stream_of(api), DIALECTS[api].usage(SERVED)
    for cut in range(0, len(stream) - 1, 3):
        found = told(api, stream[:cut], is_cut=True)
        assert found.status == "cut"
        if found.is_final:
            assert counts(found.usage) == whole


@APIS
def test_a_stream_that_ends_too_early_is_cut_though_nobody_says_so(api: Api) -> None:
    stream = stream_of(api)

    assert told(api, stream[: len(stream) // 2]).status == "cut"


def test_the_chunk_of_usage_that_only_the_gateway_asked_for_is_left_out() -> None:
    stream = stream_of(Api.CHAT)
    blocks = stream.split(b"\n\n")
    kept = b"\n\n".join(block for block in blocks if b'"choices": []' not in block)
    one = meter(Api.CHAT, swallows=True)
    passed = b"".join(one.feed(stream[at : at + 5]) for at in range(0, len(stream), 5))
    rest, found = one.close()

    assert passed + rest == kept
    assert len(kept) < len(stream)
    assert found.is_final


def test_a_chunk_that_says_something_is_never_left_out() -> None:
    """Some providers tell usage in the last chunk that has words, too."""
    chunk = {
        "choices": [{"delta": {"content": "x"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 2},
    }
    stream = f"data: {json.dumps(chunk)}\n\n".encode()
    one = meter(Api.CHAT, swallows=True)
    passed = one.feed(stream)
    _, found = one.close()

    assert passed == stream
    assert (found.status, found.is_final, counts(found.usage)) == (
        "ok",
        True,
        {"input_tokens": 7, "output_tokens": 2},
    )


def test_an_event_that_is_too_long_passes_and_its_neighbours_are_read() -> None:
    long = b'data: {"choices":[{"delta":{"content":"' + b"x" * 5_000 + b'"}}]}\n\n'
    stream = long + stream_of(Api.CHAT)
    one = meter(Api.CHAT, swallows=True, max_event_bytes=1_000)
    passed = b"".join(one.feed(stream[at : at + 64]) for at in range(0, len(stream), 64))
    rest, found = one.close()

    assert (passed + rest).startswith(long)
    assert found.is_final


def test_a_document_that_is_too_long_passes_and_is_not_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(settling, "MOST_DOCUMENT", 100)
    document = json.dumps(DIALECTS[Api.CHAT].whole(ASKED, ANSWER, SERVED)).encode()

    found = told(Api.CHAT, document[:90], document[90:], is_stream=False)
    assert (found.status, found.usage) == ("no-usage", None)


@APIS
@pytest.mark.parametrize(
    ("status", "is_free"), [(400, True), (401, True), (429, True), (529, True), (503, True)]
)
def test_what_a_provider_refuses_is_free(api: Api, status: int, is_free: bool) -> None:
    document = json.dumps(DIALECTS[api].failure(status)).encode()
    found = told(api, document, is_stream=False, status=status)

    assert (found.status, found.was_refused) == ("error", is_free)


def test_a_refusal_that_tells_usage_is_not_free() -> None:
    document = json.dumps({"error": {}, "usage": {"prompt_tokens": 9}}).encode()

    assert not told(Api.CHAT, document, is_stream=False, status=400).was_refused


def test_a_redirect_called_no_model() -> None:
    found = told(Api.CHAT, b"", is_stream=False, status=307)

    assert (found.status, found.was_refused) == ("error", True)


def test_usage_so_far_is_not_final() -> None:
    """Some providers tell it with every chunk."""
    piece = {"choices": [{"finish_reason": None}], "usage": {"prompt_tokens": 9}}
    chunk = {"candidates": [{"index": 0}], "usageMetadata": {"promptTokenCount": 9}}
    last = {"candidates": [{"finishReason": "STOP"}]}

    assert not told(Api.CHAT, f"data: {json.dumps(piece)}\n\n".encode()).is_final
    chunks = [f"data: {json.dumps(one)}\r\n\r\n".encode() for one in (chunk, last)]
    assert not told(Api.GENERATE, *chunks).is_final


def test_writes_that_only_their_parts_tell_count() -> None:
    usage = {"input_tokens": 1, "cache_creation": {"ephemeral_5m_input_tokens": 7}}

    assert read_document(Api.MESSAGES, {"type": "message", "usage": usage}).cache_write_tokens == 7


@pytest.mark.parametrize("status", [408, 499, 502, 504])
def test_what_nobody_knows_the_end_of_is_not_free(status: int) -> None:
    assert not told(Api.CHAT, b"", is_stream=False, status=status).was_refused


@pytest.mark.parametrize(
    ("api", "piece"),
    [
        (Api.MESSAGES, {"type": "error", "error": {"type": "overloaded_error"}}),
        (Api.CHAT, {"error": {"message": "x"}}),
        (Api.RESPONSES, {"type": "error", "message": "x", "error": None}),
        (Api.RESPONSES, {"type": "response.failed", "response": {"status": "failed"}}),
        (Api.GENERATE, {"error": {"code": 500}}),
    ],
)
def test_a_failure_within_a_stream_is_an_error_that_is_not_free(
    api: Api, piece: dict[str, Any]
) -> None:
    found = told(api, f"data: {json.dumps(piece)}\n\n".encode())

    assert (found.status, found.was_refused) == ("error", False)


def test_what_is_told_at_the_start_and_the_end_is_one_usage() -> None:
    start = {
        "type": "message_start",
        "message": {
            "model": "large-1",
            "usage": {
                "input_tokens": 10,
                "cache_read_input_tokens": 5,
                "cache_creation_input_tokens": 9,
                "cache_creation": {
                    "ephemeral_5m_input_tokens": 2,
                    "ephemeral_1h_input_tokens": 7,
                },
                "output_tokens": 1,
                "service_tier": "standard",
            },
        },
    }
    delta = {"type": "message_delta", "delta": {}, "usage": {"output_tokens": 40}}
    stop = {"type": "message_stop"}
    chunks = [f"data: {json.dumps(piece)}\r\n\r\n".encode() for piece in (start, delta, stop)]

    found = told(Api.MESSAGES, *chunks)
    assert counts(found.usage) == {
        "input_tokens": 10,
        "output_tokens": 40,
        "cache_read_tokens": 5,
        "cache_write_tokens": 9,
        "cache_write_1h_tokens": 7,
    }
    assert (found.tier, found.model) == ("standard", "large-1")
    early = told(Api.MESSAGES, chunks[0], is_cut=True)
    assert (early.status, early.is_final) == ("cut", False)


N = st.integers(0, 10**6)


def read_document(api: Api, document: dict[str, Any]) -> CallUsage:
    found = told(api, json.dumps(document).encode(), is_stream=False)
    assert found.usage is not None
    return found.usage


def same_as_known(usage: CallUsage, document: dict[str, Any], provider: str, flavor: str) -> None:
    """Check *usage* against what a library reads from the same answer."""
    known = extract_usage(document, provider_id=provider, api_flavor=flavor).usage
    assert usage.prompt_tokens == (known.input_tokens or 0)
    assert (usage.output_tokens or 0) == (known.output_tokens or 0)
    assert (usage.cache_read_tokens or 0) == (known.cache_read_tokens or 0)
    assert (usage.cache_write_tokens or 0) == (known.cache_write_tokens or 0)


@given(N, N, N, N, N)
def test_messages_is_read_as_a_library_does(
    fresh: int, output: int, read: int, short: int, long: int
) -> None:
    document = {
        "type": "message",
        "model": "claude-sonnet-4-5",
        "usage": {
            "input_tokens": fresh,
            "output_tokens": output,
            "cache_read_input_tokens": read,
            "cache_creation_input_tokens": short + long,
            "cache_creation": {
                "ephemeral_5m_input_tokens": short,
                "ephemeral_1h_input_tokens": long,
            },
        },
    }

    usage = read_document(Api.MESSAGES, document)
    same_as_known(usage, document, "anthropic", "default")
    assert usage.cache_write_1h_tokens == long


@given(N, N, N, N)
def test_chat_is_read_as_a_library_does(fresh: int, read: int, said: int, thought: int) -> None:
    document = {
        "model": "gpt-5",
        "choices": [{"finish_reason": "stop"}],
        "usage": {
            "prompt_tokens": fresh + read,
            "completion_tokens": said + thought,
            "total_tokens": fresh + read + said + thought,
            "prompt_tokens_details": {"cached_tokens": read},
            "completion_tokens_details": {"reasoning_tokens": thought},
        },
    }

    usage = read_document(Api.CHAT, document)
    same_as_known(usage, document, "openai", "chat")
    assert usage.reasoning_tokens == thought


@given(N, N, N, N)
def test_responses_is_read_as_a_library_does(
    fresh: int, read: int, said: int, thought: int
) -> None:
    document = {
        "model": "gpt-5",
        "status": "completed",
        "error": None,
        "usage": {
            "input_tokens": fresh + read,
            "output_tokens": said + thought,
            "input_tokens_details": {"cached_tokens": read},
            "output_tokens_details": {"reasoning_tokens": thought},
        },
    }

    usage = read_document(Api.RESPONSES, document)
    same_as_known(usage, document, "openai", "responses")
    assert told(Api.RESPONSES, json.dumps(document).encode(), is_stream=False).status == "ok"


@given(N, N, N, N, N)
def test_generate_is_read_as_a_library_does(
    fresh: int, read: int, said: int, thought: int, tools: int
) -> None:
    document = {
        "modelVersion": "gemini-2.5-flash",
        "candidates": [{"finishReason": "STOP"}],
        "usageMetadata": {
            "promptTokenCount": fresh + read,
            "cachedContentTokenCount": read,
            "candidatesTokenCount": said,
            "thoughtsTokenCount": thought,
            "toolUsePromptTokenCount": tools,
            "totalTokenCount": fresh + read + said + thought + tools,
        },
    }

    same_as_known(read_document(Api.GENERATE, document), document, "google", "default")


def test_thoughts_that_stand_beside_the_output_count_too() -> None:
    usage = {
        "prompt_tokens": 10,
        "completion_tokens": 5,
        "total_tokens": 115,
        "completion_tokens_details": {"reasoning_tokens": 100},
    }

    assert read_document(Api.CHAT, {"usage": usage}).output_tokens == 105


def test_output_that_only_the_total_tells_counts_too() -> None:
    document = {"usageMetadata": {"promptTokenCount": 10, "totalTokenCount": 17}}

    assert read_document(Api.GENERATE, document).output_tokens == 7


@APIS
@pytest.mark.parametrize(
    "usage", [{"prompt_tokens": -1}, {"input_tokens": 2**70}, {"output_tokens": "1"}, [], 1, None]
)
def test_impossible_numbers_tell_nothing(api: Api, usage: object) -> None:
    document = {"type": "message", "usage": usage, "usageMetadata": usage}
    found = told(api, json.dumps(document).encode(), is_stream=False)

    assert found.usage is None or counts(found.usage) in ({}, {"output_tokens": 0})


@given(st.sampled_from(Api), st.lists(st.binary(max_size=40)), st.booleans(), st.booleans())
def test_whatever_comes_passes_and_is_no_exception(
    api: Api, chunks: list[bytes], is_stream: bool, is_cut: bool
) -> None:
    assert told(api, *chunks, is_stream=is_stream, is_cut=is_cut).usage is None


PIECES = st.sampled_from(
    [
        b'data: {"type":"message_start","message":{"usage":{"input_tokens":3}}}\n\n',
        b'data: {"type":"message_delta","usage":{"output_tokens":3}}\n\n',
        b'data: {"usage":{"prompt_tokens":3},"choices":[]}\n\n',
        b'data: {"usage":{"prompt_tokens":3},"choices":[{"finish_reason":null}]}\n\n',
        b'data: {"usage":null,"choices":[]}\r\n\r\n',
        b'data: {"type":"response.completed","response":{"usage":{"output_tokens":1}}}\n\n',
        b'data: {"usageMetadata":{"promptTokenCount":1}}\r\r',
        b'data: {"candidates":[{"finishReason":"STOP"}],"usageMetadata":{}}\n\n',
        b"data: [DONE]\n\n",
        b'data: {"error":{}}\n\n',
        b'data: {"usage":{"prompt_tokens":',
        b"\n",
        b"\r",
    ]
)


@given(st.sampled_from(Api), st.lists(PIECES), st.integers(1, 50), st.booleans())
def test_any_pieces_in_any_chunks_tell_the_same(
    api: Api, pieces: list[bytes], size: int, swallows: bool
) -> None:
    stream = b"".join(pieces)
    one, other = meter(api, swallows=swallows), meter(api, swallows=swallows)
    passed = one.feed(stream)
    cut = [other.feed(stream[at : at + size]) for at in range(0, len(stream), size)]

    rest, found = one.close()
    last, same = other.close()
    assert (passed + rest, found) == (b"".join(cut) + last, same)


PRICE = Price(Rate(1_000_000), Rate(2_000_000), Rate(100_000), Rate(1_250_000), Rate(2_000_000))
WORST = Worst(1_000, 500, 9_999)


def test_a_ledger_is_told_what_was_used() -> None:
    usage = CallUsage(100, 50, 7, 9, 3, 20, model=MODEL)

    assert call_of(report_of(usage, "call-1")) == replace(usage, call_id="call-1")


def test_a_whole_call_is_charged_what_it_cost() -> None:
    usage = CallUsage(100, 50, model=MODEL)

    assert charge_of(Told("ok", usage, is_final=True), PRICE, WORST) == Charge(
        200, 150, is_estimate=False, cost=Cost(200, 200)
    )


def test_a_refused_call_is_free() -> None:
    refused = Told("error", was_refused=True)

    assert charge_of(refused, PRICE, WORST) == Charge(0, 0, is_estimate=False, cost=FREE)


@pytest.mark.parametrize(
    ("found", "price"),
    [
        (Told("no-usage"), PRICE),
        (Told("cut", CallUsage(100, 1, model=MODEL)), PRICE),
        (Told("error"), PRICE),
        (Told("ok", CallUsage(100, 50, model=MODEL), is_final=True), None),
        (Told("ok", CallUsage(100, None, model=MODEL), is_final=True), PRICE),
        (Told("ok", CallUsage(100, 50, model=MODEL), is_final=True, tier="priority"), PRICE),
    ],
)
def test_all_else_is_charged_what_was_reserved(found: Told, price: Price | None) -> None:
    charge = charge_of(found, price, WORST)

    assert (charge.microusd, charge.is_estimate) == (9_999, True)


def test_what_is_known_to_cost_more_than_was_reserved_counts() -> None:
    found = Told("cut", CallUsage(50_000, 1, model=MODEL))

    assert charge_of(found, PRICE, WORST).microusd == 50_002


def test_the_lifetime_that_was_asked_for_tells_what_an_answer_does_not() -> None:
    found = Told("ok", CallUsage(0, 0, None, 100, model=MODEL), is_final=True)

    assert charge_of(with_lifetimes(found, "minutes"), PRICE, WORST).microusd == 125
    assert not charge_of(with_lifetimes(found, "minutes"), PRICE, WORST).is_estimate
    assert charge_of(with_lifetimes(found, "hour"), PRICE, WORST).is_estimate


@APIS
def test_an_event_takes_less_than_fifty_microseconds(api: Api) -> None:
    stream = stream_of(api) * 200
    events = stream.count(b"\n\n")
    one = meter(api, swallows=True)
    best = 1.0
    for _ in range(3):
        before = perf_counter()
        for at in range(0, len(stream), 1_400):
            one.feed(stream[at : at + 1_400])
        best = min(best, (perf_counter() - before) / events)

    assert best < 50e-6
