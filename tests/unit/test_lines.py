"""Bytes to complete lines: any cut, any bytes, bounded memory."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capsule_runtime.core.lines import LineBuffer

STREAM = b'{"a":1}\n\n{"b":"\xc3\xa9"}\r\nplain\xe2\x80\xa8text\x00\xff\x85\x0b\n\n\nend'
CAP = 8
MIB = 1024 * 1024


def feed(buffer: LineBuffer, chunks: Iterable[bytes]) -> tuple[bytes, list[int]]:
    """Return the kept lines and the lengths of the skipped ones, once all *chunks* were fed."""
    block, skipped = b"", list[int]()
    for lines in [*map(buffer.feed, chunks), buffer.close()]:
        block += lines.block
        skipped += lines.skipped
    return block, skipped


def wanted(stream: bytes, cap: int) -> tuple[bytes, list[int]]:
    """Return what *stream* holds, read all at once and line by line."""
    lines = stream.split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    kept = b"".join(line + b"\n" for line in lines if len(line) <= cap)
    return kept, [len(line) for line in lines if len(line) > cap]


def cuts(stream: bytes, places: Iterable[int]) -> list[bytes]:
    bounds = [0, *sorted(places), len(stream)]
    return [stream[start:end] for start, end in pairwise(bounds)]


# Any cut.


@pytest.mark.parametrize("cut", range(len(STREAM) + 1))
def test_lines_do_not_depend_on_where_the_stream_is_cut(cut: int) -> None:
    assert feed(LineBuffer(99), [STREAM[:cut], STREAM[cut:]]) == (STREAM + b"\n", [])


def test_lines_do_not_depend_on_the_size_of_the_chunks() -> None:
    for size in range(1, len(STREAM)):
        chunks = [STREAM[start : start + size] for start in range(0, len(STREAM), size)]
        assert feed(LineBuffer(99), chunks) == (STREAM + b"\n", [])


@given(st.binary(max_size=60), st.lists(st.integers(0, 60)), st.integers(0, 12))
def test_any_bytes_cut_anywhere_give_the_same_lines(
    stream: bytes, places: list[int], cap: int
) -> None:
    stream = stream.replace(b"\x00", b"\n")  # newlines are too rare in random bytes

    assert feed(LineBuffer(cap), cuts(stream, places)) == wanted(stream, cap)


def test_a_chunk_gives_the_lines_that_it_completes() -> None:
    buffer = LineBuffer(99)

    assert buffer.feed(b"one\ntwo\nth").block == b"one\ntwo\n"
    assert buffer.feed(b"r").block == b""
    assert buffer.feed(b"ee\n").block == b"three\n"


def test_an_empty_chunk_gives_nothing() -> None:
    buffer = LineBuffer(99)
    buffer.feed(b"on")

    assert buffer.feed(b"").block == b""
    assert buffer.feed(b"e\n").block == b"one\n"


# Only LF ends a line.


@pytest.mark.parametrize(
    "inside",
    [b"\r", b"\x0b", b"\x0c", b"\x1c", b"\x85", b"\xe2\x80\xa8", b"\xe2\x80\xa9", b"\x00", b"\xff"],
    ids=repr,
)
def test_only_a_newline_ends_a_line(inside: bytes) -> None:
    assert LineBuffer(99).feed(b"a" + inside + b"b\n").block == b"a" + inside + b"b\n"


def test_a_carriage_return_before_the_newline_is_kept() -> None:
    assert LineBuffer(99).feed(b"a\r\nb\r\n").block == b"a\r\nb\r\n"


def test_empty_lines_are_kept() -> None:
    assert LineBuffer(99).feed(b"\n\na\n\n").block == b"\n\na\n\n"


# The end of output.


def test_the_last_line_needs_no_newline() -> None:
    buffer = LineBuffer(99)
    buffer.feed(b"a\nb")

    assert buffer.close().block == b"b\n"


@pytest.mark.parametrize("stream", [b"", b"\n", b"a\n"])
def test_an_end_behind_a_newline_gives_nothing(stream: bytes) -> None:
    buffer = LineBuffer(99)
    buffer.feed(stream)

    assert buffer.close().block == b""


def test_the_end_is_given_once() -> None:
    buffer = LineBuffer(99)
    buffer.feed(b"a")
    buffer.close()

    assert buffer.close().block == b""


# Lines that are too long.

LONG = b"x" * (CAP + 1)
FIT = b"y" * CAP


@pytest.mark.parametrize(
    ("chunks", "block", "skipped"),
    [
        ([FIT + b"\n"], FIT + b"\n", []),
        ([FIT[:3], FIT[3:], b"\n"], FIT + b"\n", []),
        ([FIT], FIT + b"\n", []),
        ([LONG + b"\n"], b"", [9]),
        ([b"a\n" + LONG + b"\nb\n"], b"a\nb\n", [9]),
        ([LONG[:4], LONG[4:] + b"\nb\n"], b"b\n", [9]),
        ([LONG, b"\nb\n"], b"b\n", [9]),
        ([LONG, LONG, LONG + b"\nb\n"], b"b\n", [27]),
        ([LONG], b"", [9]),
        ([LONG, LONG], b"", [18]),
        ([b"a\n" + LONG], b"a\n", [9]),
        ([LONG + b"\n" + LONG + b"\nb\n"], b"b\n", [9, 9]),
        ([LONG, b"\n" + LONG, b"\nb\n"], b"b\n", [9, 9]),
        ([LONG + b"\n" + LONG], b"", [9, 9]),
        ([b"a\n" + LONG + b"\nb\n" + LONG + b"\nc"], b"a\nb\nc\n", [9, 9]),
        ([FIT + b"\n" + LONG + b"\n" + FIT + b"\n"], (FIT + b"\n") * 2, [9]),
    ],
    ids=[
        "exactly at the cap",
        "at the cap, carried",
        "at the cap, at the end",
        "whole in one chunk",
        "between two others",
        "cut in two",
        "its newline alone in the next chunk",
        "over many chunks",
        "at the end without a newline",
        "at the end over two chunks",
        "begun behind a line",
        "two in a row in one chunk",
        "two in a row, carried",
        "two, the second at the end",
        "two with a line between",
        "between two at the cap",
    ],
)
def test_an_over_long_line_costs_itself_and_no_neighbour(
    chunks: list[bytes], block: bytes, skipped: list[int]
) -> None:
    assert feed(LineBuffer(CAP), chunks) == (block, skipped)


def test_an_over_long_line_is_reported_when_it_ends() -> None:
    buffer = LineBuffer(CAP)

    assert buffer.feed(LONG).skipped == ()
    assert buffer.feed(LONG).skipped == ()
    assert buffer.feed(b"\n").skipped == (18,)


@given(st.lists(st.integers(0, 40), max_size=12), st.integers(1, CAP))
def test_in_chunks_no_longer_than_the_cap_a_skipped_line_came_before_the_block(
    lengths: list[int], size: int
) -> None:
    """So whoever notes the skipped lines first, notes them in their place, however it was cut."""
    stream = b"".join(
        b"%c" % (97 + number) * length + b"\n" for number, length in enumerate(lengths)
    )
    buffer, found = LineBuffer(CAP), list[int]()

    for start in range(0, len(stream), size):
        lines = buffer.feed(stream[start : start + size])
        found += [*lines.skipped, *map(len, lines.block.split(b"\n")[:-1])]

    assert found == lengths


@pytest.mark.parametrize("size", [1, 3, 7, 8, 9, 100])
@pytest.mark.parametrize("head", [1, 3, 8, 99])
def test_how_an_over_long_line_begins_is_a_line_in_its_place(size: int, head: int) -> None:
    long = b"0123456789"
    stream = b"first\n" + long + b"\nnext\n\n" + long + long + b"\nlast\n" + long
    chunks = [stream[start : start + size] for start in range(0, len(stream), size)]

    block, skipped = feed(LineBuffer(CAP, head), chunks)

    begin = long[: min(head, CAP)]
    assert block == b"first\n%s\nnext\n\n%s\nlast\n%s\n" % (begin, begin, begin)
    assert skipped == [10, 20, 10]


# What it costs.


def test_memory_is_bounded_by_the_cap_and_one_chunk() -> None:
    """A line of 64 MiB in reads of 32 KiB never holds two caps."""
    cap, chunk = MIB, b"x" * 32768
    buffer = LineBuffer(cap)
    tracemalloc.start()

    for _ in range(2048):
        buffer.feed(chunk)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert peak < 2 * cap
    assert buffer.feed(b"\n").skipped == (64 * MIB,)


def test_a_slow_drip_holds_its_bytes_and_not_an_object_for_each() -> None:
    cap = MIB // 4
    buffer = LineBuffer(cap)
    pairs = [bytes((first, second)) for first in range(1, 9) for second in range(11, 256)]
    tracemalloc.start()

    for number in range(cap // 2):
        buffer.feed(pairs[number % len(pairs)][:2])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert peak < 2 * cap


def test_time_is_linear_in_the_length_of_a_line() -> None:
    """Four times the bytes take about four times as long, not sixteen."""

    def seconds(size: int) -> float:
        chunks, best = [b"x" * 4096] * (size // 4096), float("inf")
        for _ in range(5):
            buffer = LineBuffer(64 * MIB)
            begun = time.process_time()  # not the time that others had
            for chunk in chunks:
                buffer.feed(chunk)
            buffer.feed(b"\n")
            best = min(best, time.process_time() - begun)
        return best

    assert seconds(8 * MIB) < 10 * seconds(2 * MIB)
