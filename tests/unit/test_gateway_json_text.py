"""A body has one meaning, and its members have places."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capsule_runtime.core.gateway import json_text
from capsule_runtime.core.gateway.json_text import JsonObject, Malformed, TooLarge, read_object

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.text(), JSON, max_size=6)
INDENTS = st.sampled_from([None, 0, 2, "\t", "\r\n "])


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"1",
        b'{"a":1}x',
        b'{"a":1,}',
        b'{"a" 1}',
        b"{a:1}",
        b'{"a":1 "b":2}',
        b'{"a":NaN}',
        b'{"a":-Infinity}',
        b'{"a":"\xff"}',
        b'\xef\xbb\xbf{"a":1}',
        '{"a":1}'.encode("utf-16"),
        b'{"a":1,"a":1}',
        b'{"a":1,"\\u0061":2}',
        b'{"a":{"b":1,"b":1}}',
        b'{"a":[{"x":[{"b":1,"b":1}]}]}',
        b'{"a":"line\nbreak"}',
        b'{"a":' + b"[" * 5_000 + b"]" * 5_000 + b"}",
        b'{"a":' * 5_000,
        b'{"a":' + b"9" * 10_000 + b"}",
    ],
)
def test_a_body_without_one_meaning_is_malformed(body: bytes) -> None:
    assert isinstance(read_object(body), Malformed)


def test_two_spellings_of_a_key_are_one_key_twice() -> None:
    spellings = {"a_b": "aB"}

    assert isinstance(read_object(b'{"a_b":1}', spellings), JsonObject)
    assert isinstance(read_object(b'{"a_b":1,"aB":2}', spellings), Malformed)
    assert isinstance(read_object(b'{"x":{"a_b":1,"aB":2}}', spellings), Malformed)


def test_a_body_that_is_too_large_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_text, "MOST_BYTES", 8)

    assert read_object(b'{"a": 123}') == TooLarge(8)


@pytest.mark.parametrize("value", [b"{},", b"[],", b"1,", b'"":1,'])
def test_a_body_of_nothing_but_values_is_refused_before_it_takes_their_memory(value: bytes) -> None:
    begin, end = (b'{"a":{', b'"x":1}}') if b":" in value else (b'{"a":[', b"1]}")
    body = begin + value * (json_text.MOST_STRUCTURE // 2) + end

    assert read_object(body) == Malformed("the body has too many values")


def test_a_text_that_never_ends_is_looked_at_once() -> None:
    """Seconds would be hours if every quote in it began another look."""
    body = b'{"a":' + b'"\\' * 2_000_000

    assert isinstance(read_object(body), Malformed)


def test_an_object_with_thousands_of_members_is_no_request() -> None:
    body = json.dumps({str(number): number for number in range(1_001)}).encode()

    assert isinstance(read_object(body), Malformed)


@pytest.mark.parametrize("text", ["a", '\\"', "\\\\", "{", "[1,2]", "\u00e9"])
def test_a_long_text_is_not_taken_for_values(text: str) -> None:
    body = json.dumps({"a": text * 1_200_000}).encode()

    assert isinstance(read_object(body), JsonObject)


@given(OBJECTS, INDENTS, st.booleans())
def test_every_member_stands_where_it_is_said_to(
    value: dict[str, object], indent: str | int | None, ascii_only: bool
) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    if not ascii_only and any(0xD800 <= ord(char) < 0xE000 for char in text):
        return
    found = read_object(f" {text}\n".encode())

    assert isinstance(found, JsonObject)
    assert {key: member.value for key, member in found.members.items()} == value
    for key, member in found.members.items():
        assert json.loads(found.text[member.start : member.end]) == value[key]


@given(st.binary(max_size=60) | st.text(alphabet='{}[]",:\\u0d8a1 \n').map(str.encode))
def test_whatever_the_bytes_are_there_is_an_answer(body: bytes) -> None:
    assert isinstance(read_object(body), JsonObject | Malformed)
