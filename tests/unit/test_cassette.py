"""Which recorded call answers a call, and what of it is written."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capsule_runtime.core.gateway.apis import Api
from capsule_runtime.core.gateway.cassette import (
    Cassette,
    Recorded,
    Start,
    Unplayable,
    digest_of,
    line_of,
    recorded,
)

PATH = "/v1/messages"


def asking(words: str, **more: Any) -> dict[str, Any]:
    return {"model": "large", "messages": [{"role": "user", "content": words}], **more}


def call(
    digest: str, body: bytes = b"{}", model: str = "large", *, streams: bool = False
) -> Recorded:
    return recorded(digest, Api.MESSAGES, model, streams=streams, status=200, headers=[], body=body)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (asking("a"), asking("a", metadata={"user_id": "x"})),
        (asking("a", user="x"), asking("a", user="y")),
        (asking("on 2026-01-31"), asking("on 2026-02-01")),
        (asking("Sat Jan 31 2026"), asking("Sun Feb 1 2026")),
        (asking("at 2026-01-31T10:00:00.123Z"), asking("at 2027-01-31T11:00:00Z")),
        (
            asking("id 0b0f5c3e-1111-2222-3333-444455556666"),
            asking("id aaaaaaaa-1111-2222-3333-444455556666"),
        ),
        (asking(f"run_{'a1' * 16}"), asking(f"run_{'b2' * 16}")),
    ],
)
def test_what_changes_by_itself_asks_for_the_same(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    assert digest_of(PATH, one) == digest_of(PATH, other)


@pytest.mark.parametrize(
    "other",
    [asking("b"), asking("a", model="small"), asking("a", tools=[]), asking("a", temperature=1)],
)
def test_what_else_differs_is_another_question(other: dict[str, Any]) -> None:
    assert digest_of(PATH, asking("a")) != digest_of(PATH, other)
    assert digest_of(PATH, asking("a")) != digest_of("/v1/other", asking("a"))


def test_the_same_question_gets_its_answers_in_order_and_each_once() -> None:
    cassette = Cassette([call("a", b"1"), call("b", b"2"), call("a", b"3")])

    played = [cassette.play(digest) for digest in ("a", "a", "a", "b", "c")]

    assert [one.body if one else None for one in played] == [b"1", b"3", None, b"2", None]


def test_another_question_gets_the_next_answer_of_its_model_and_form() -> None:
    cassette = Cassette(
        [call("a", b"1"), call("b", b"2", "small"), call("c", b"3", streams=True), call("d", b"4")]
    )
    cassette.play("a")

    played = [
        cassette.play_next(Api.MESSAGES, "large", streams=False),
        cassette.play_next(Api.MESSAGES, "large", streams=False),
        cassette.play_next(Api.MESSAGES, "large", streams=True),
        cassette.play_next(Api.CHAT, "small", streams=False),
    ]

    assert [one.body if one else None for one in played] == [b"4", None, b"3", None]
    assert cassette.play("d") is None


@given(st.binary(max_size=200), st.text(max_size=50))
def test_what_is_written_is_read_again(body: bytes, model: str) -> None:
    lines = line_of(Start()) + line_of(call("a", body, model))

    played = Cassette.read(lines).play("a")

    assert played is not None
    assert (played.body, played.model) == (body, model)


def test_of_the_headers_only_harmless_ones_are_written() -> None:
    heads = [
        (b"content-type", b"application/json"),
        (b"set-cookie", b"secret"),
        (b"authorization", b"secret"),
        (b"request-id", b"r1"),
    ]

    made = recorded("a", Api.CHAT, "m", streams=False, status=200, headers=heads, body=b"")

    assert made.headers == (("content-type", "application/json"),)


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b"", 1),
        (line_of(call("a")), 1),
        (b'{"line":"cassette","version":2}\n', 1),
        (line_of(Start()) + b"{}\n", 2),
        (line_of(Start()) + line_of(call("a")) + b'{"line":"ca', 3),
        (line_of(Start()) + b"\xff\n", 2),
    ],
)
def test_what_is_no_cassette_is_told_with_its_line(data: bytes, line: int) -> None:
    with pytest.raises(Unplayable, match=f"line {line}:"):
        Cassette.read(data)
