"""The head of a request: what passes, and that it is read in one way."""

from __future__ import annotations

import pytest

from capsule_runtime.core.http_head import declared_length, end_of_head, read_head, wants_close
from capsule_runtime.core.relaying import Fault, RequestHead

NAMES = {b"gate.test:80"}
HOST = b"Host: Gate.test:80\r\n"


def read(lines: bytes, most: int = 10) -> RequestHead | Fault:
    return read_head(b"POST /v1?a=b HTTP/1.1\r\n" + lines + b"\r\n", NAMES, most)


def head(lines: bytes) -> RequestHead:
    found = read(lines)
    assert isinstance(found, RequestHead)
    return found


def test_a_head_is_read_with_its_names_in_lower_case() -> None:
    assert head(HOST + b"X-A:  one two \r\nx-a:\r\n") == RequestHead(
        "POST",
        "/v1?a=b",
        ((b"host", b"Gate.test:80"), (b"x-a", b"one two"), (b"x-a", b"")),
    )


def test_a_body_has_a_length_or_chunks_or_there_is_none() -> None:
    assert declared_length(head(HOST)) == 0
    assert declared_length(head(HOST + b"Content-Length: 7\r\n")) == 7
    assert declared_length(head(HOST + b"Transfer-Encoding: Chunked\r\n")) is None


@pytest.mark.parametrize(
    ("value", "closes"), [(b"close", True), (b"x, Close", True), (b"keep-alive", False)]
)
def test_who_wants_to_leave_says_so(value: bytes, closes: bool) -> None:
    assert wants_close(head(HOST + b"Connection: " + value + b"\r\n").headers) is closes


def test_so_many_headers_pass_and_no_more() -> None:
    assert isinstance(read(HOST + b"a: b\r\n" * 9), RequestHead)
    assert read(HOST + b"a: b\r\n" * 10) == Fault(431, "headers", "more than 10 headers")


@pytest.mark.parametrize("byte", [*range(9), *range(10, 32), 127])
def test_no_control_byte_passes_in_a_value(byte: int) -> None:
    found = read(HOST + b"X: a" + bytes([byte]) + b"b\r\n")

    assert isinstance(found, Fault)
    assert found.status == 400


@pytest.mark.parametrize("data", [b"", b"a\r\n", b"a\n\n", b"a\r\n\r"])
def test_a_head_ends_with_an_empty_line_only(data: bytes) -> None:
    assert end_of_head(data) == -1
    assert end_of_head(b"a\r\n\r\nb") == 5
