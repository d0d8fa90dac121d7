"""Events out of bytes that come in any pieces."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise
from time import perf_counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capsule_runtime.core.gateway.sse import Event, EventReader

STREAM = (
    b"\xef\xbb\xbfevent: a\r\ndata: {\r\ndata: }\r\n\r\n"
    b": a comment\n\ndata:x\n\n\n\rdata: y\r\rid: 1\rdata\r\n\ndata: \xc3\xa9\n\nrest: of"
)
ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])


def read(*chunks: bytes, max_bytes: int = 1_000) -> list[Event]:
    reader = EventReader(max_bytes)
    return [event for chunk in chunks for event in reader.feed(chunk)] + reader.close()


def test_lines_may_end_in_three_ways() -> None:
    assert [event.data for event in read(STREAM) if event.data is not None] == [
        b"{\n}",
        b"x",
        b"y",
        b"",
        b"\xc3\xa9",
    ]


def test_a_mark_of_the_byte_order_is_no_part_of_a_name() -> None:
    assert [event.data for event in read(b"\xef\xbb\xbfdata: x\n\n")] == [b"x"]


@pytest.mark.parametrize("cut", range(len(STREAM) + 1))
def test_where_the_stream_is_cut_into_chunks_changes_nothing(cut: int) -> None:
    assert read(STREAM[:cut], STREAM[cut:]) == read(STREAM)


def test_one_byte_at_a_time_changes_nothing() -> None:
    assert read(*(bytes([byte]) for byte in STREAM)) == read(STREAM)


@given(st.lists(st.binary(max_size=12) | ENDS), st.lists(st.integers(0, 60)))
def test_the_bytes_of_all_events_are_those_that_came(parts: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(parts)
    places = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    chunks = [stream[a:b] for a, b in pairwise(places)]

    events = read(*chunks)
    assert b"".join(event.raw for event in events) == stream
    assert events == read(stream)


@given(st.lists(st.lists(st.binary(max_size=8), min_size=1, max_size=3), max_size=6), ENDS)
def test_what_was_written_is_read(messages: list[list[bytes]], end: bytes) -> None:
    lines = [[line.translate(None, b"\r\n") for line in message] for message in messages]
    stream = b"".join(
        b"".join(b"data: " + line + end for line in message) + end for message in lines
    )

    told = [event.data for event in read(stream) if event.data is not None]
    assert told == [b"\n".join(message) for message in lines]


def test_an_event_that_nothing_ended_is_not_whole() -> None:
    assert read(b"data: x\n") == [Event(b"data: x\n", None, is_whole=False)]


@pytest.mark.parametrize("size", [1, 7, 64])
def test_an_event_that_is_too_long_costs_itself_only(size: int) -> None:
    long = b"data: " + b"x" * 500 + b"\n\n"
    stream = b"data: a\n\n" + long + b"data: b\n\n"
    chunks = [stream[at : at + size] for at in range(0, len(stream), size)]

    events = read(*chunks, max_bytes=100)
    assert b"".join(event.raw for event in events) == stream
    assert [event.data for event in events if event.is_whole] == [b"a", b"b"]
    assert all(len(event.raw) <= 100 + size for event in events)


def test_an_event_without_end_takes_no_more_memory_than_allowed() -> None:
    reader, chunk = EventReader(100_000), b"x" * 10_000
    tracemalloc.start()
    for _ in range(2_000):
        reader.feed(chunk)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < 600_000


@pytest.mark.parametrize("end", [b"", b"\r", b"\n", b"\r\n"])
def test_time_is_linear_in_what_comes(end: bytes) -> None:
    """A megabyte byte by byte, without an event's end: seconds if each byte meant a new search."""
    reader, drip = EventReader(2**24), [b"x"] * 200_000
    before = perf_counter()
    for byte in drip:
        reader.feed(byte)
    reader.feed(end + b"x")

    assert perf_counter() - before < 5
