"""The same bytes, cut anywhere, are the same log: through lines, driver and run."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from capsule_drivers.jsonl import JsonlDriver
from capsule_runtime import Event, Exit, TextDelta
from capsule_runtime.core.log import decode_entries
from support.client import Client
from support.player import play
from support.plays import event

GARBAGE = [
    b"",
    b"\r",
    b"  ",
    b"not json",
    b"\x00",
    b"\xff\xfe",
    b"{",
    b"}",
    b'{"type":"text-delta",',
    b'"text":"a"}',
    b'{"type":"text-delta","text":"a"}{"type":"text-delta","text":"b"}',
    b'{"type":"text-delta","text":"a\\ud83d"}',
    b'{"type":"text-delta","text":"\\ude00b"}',
    b'{"type":"thinking-delta","text":"\\ude00b"}',
    b'{"type":"tool-result","id":"c1","content":NaN}',
    b'{"type":"tool-call","id":"c1","name":"n","input":' + b"[" * 200 + b"]" * 200 + b"}",
    b'{"type":"telemetry"}',
]
_lines = st.one_of(event.map(msgspec.json.encode), st.sampled_from(GARBAGE), st.binary(max_size=9))
_ends = st.sampled_from([b"\n", b"\n", b"\n", b"\r\n"])
streams = st.lists(st.tuples(_lines, _ends).map(b"".join), max_size=24).map(b"".join)
places = st.lists(st.integers(0, 2000), max_size=20)


def cut(stream: bytes, at: list[int]) -> list[bytes]:
    bounds = [0, *sorted(min(place, len(stream)) for place in at), len(stream)]
    return [stream[start:end] for start, end in pairwise(bounds)]


@given(streams, places)
def test_the_same_bytes_cut_anywhere_give_the_same_entries(stream: bytes, at: list[int]) -> None:
    whole = play(JsonlDriver(), [stream], Exit(0, None))

    in_pieces = play(JsonlDriver(), cut(stream, at), Exit(0, None))

    assert in_pieces.events == whole.events
    assert in_pieces.entries == whole.entries


@given(streams)
def test_any_bytes_give_a_log_that_a_client_can_follow_and_the_disk_can_hold(
    stream: bytes,
) -> None:
    played = play(JsonlDriver(), [stream], Exit(0, None))

    client = Client()
    for frame in played.frames:
        client.receive(frame)
    assert client.final is not None
    for entry in played.entries:
        msgspec.json.encode(entry)


@given(st.lists(event, max_size=12), st.integers(0, 11), st.sampled_from(GARBAGE))
def test_a_bad_line_costs_no_neighbour(events: list[Event], place: int, bad: bytes) -> None:
    lines = [msgspec.json.encode(event) + b"\n" for event in events]
    whole = list(JsonlDriver().receive(b"".join(lines)))
    lines.insert(min(place, len(lines)), bad + b"\n")

    said = list(JsonlDriver().receive(b"".join(lines)))

    position = iter(said)
    assert len(whole) == len(events)
    assert all(event in position for event in whole)


def test_a_transcript_in_one_chunk_and_byte_by_byte_is_one_log() -> None:
    stream = (Path(__file__).parent / "transcripts/jsonl/broken.jsonl").read_bytes()

    whole = play(JsonlDriver(), [stream], Exit(0, None))
    by_byte = play(JsonlDriver(), [bytes((byte,)) for byte in stream], Exit(0, None))

    assert by_byte.entries == whole.entries


def test_entries_of_any_bytes_are_read_back_as_they_were_written() -> None:
    stream = b"\n".join(GARBAGE) + b"\n" + msgspec.json.encode(TextDelta("a\x00\u2028")) + b"\n"
    played = play(JsonlDriver(), [stream], Exit(0, None))

    assert decode_entries(msgspec.json.Encoder().encode_lines(played.entries)) == played.entries
