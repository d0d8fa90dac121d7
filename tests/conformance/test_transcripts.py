"""Every installed driver against recorded outputs: the events and frames that must come of them.

A case of driver NAME is `transcripts/NAME/CASE.jsonl`, the harness's stdout as it was; beside it
`CASE.events.jsonl`, `CASE.frames.jsonl`, and `CASE.exit` if the harness did not leave with 0.
"""

from __future__ import annotations

import io
from pathlib import Path

import msgspec
import pytest

from capsule_runtime import Event, Frame, TurnEnd, TurnFailed
from capsule_runtime.driver import driver_names
from capsule_runtime.replay import replay_events, replay_frames
from support.client import Client
from support.player import chunks_of, exit_of, new_driver, pinned, play
from support.script import CONTEXT, RUN, short

TRANSCRIPTS = Path(__file__).parent / "transcripts"
DAMAGED_LINES = 40
"""How many lines of a transcript, at most, are damaged in turn."""
SIZES = (1, 2, 3, 7, 64, 1000, 65536)
_events = msgspec.json.Decoder(Event)
_frames = msgspec.json.Decoder(Frame)


def cases(driver: str) -> list[Path]:
    derived = (".events", ".frames")
    found = sorted((TRANSCRIPTS / driver).glob("*.jsonl"))
    return [path for path in found if not path.stem.endswith(derived)]


CASES = [path for name in driver_names() for path in cases(name)]


def name_of(path: Path) -> str:
    return f"{path.parent.name}-{path.stem}"


def beside(path: Path, kind: str) -> bytes:
    return path.with_suffix(f".{kind}.jsonl").read_bytes()


@pytest.mark.parametrize("driver", driver_names())
def test_every_driver_has_a_transcript(driver: str) -> None:
    assert cases(driver)


def test_every_expectation_belongs_to_a_case() -> None:
    known = {path.with_suffix("") for path in CASES}

    for path in TRANSCRIPTS.rglob("*.*"):
        assert path.with_suffix("").with_suffix("") in known


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_the_events_of_a_transcript_in_chunks_of_any_size(case: Path, size: int) -> None:
    driver = new_driver(case.parent.name)

    played = play(driver, chunks_of(case.read_bytes(), size), exit_of(case))

    assert [pinned(event) for event in played.events] == _events.decode_lines(
        beside(case, "events")
    )


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_the_frames_of_a_transcript_byte_for_byte(case: Path, size: int) -> None:
    driver = new_driver(case.parent.name)

    played = play(driver, chunks_of(case.read_bytes(), size), exit_of(case))

    assert msgspec.json.Encoder().encode_lines(played.frames) == beside(case, "frames")


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_a_replay_shows_the_same(case: Path) -> None:
    name, stream, exit = case.parent.name, case.read_bytes(), exit_of(case)

    events = list(replay_events(new_driver(name), io.BytesIO(stream), exit))
    frames = list(
        replay_frames(new_driver(name), io.BytesIO(stream), exit, run=RUN, context=CONTEXT)
    )

    assert [pinned(event) for event in events] == _events.decode_lines(beside(case, "events"))
    wanted = _frames.decode_lines(beside(case, "frames"))
    assert [short(frame) for frame in frames] == [short(frame) for frame in wanted]


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_a_client_can_follow_it(case: Path) -> None:
    client = Client()

    for frame in _frames.decode_lines(beside(case, "frames")):
        client.receive(frame)

    assert client.final is not None


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_a_driver_ends_every_attempt_with_a_terminal_event(case: Path) -> None:
    events = _events.decode_lines(beside(case, "events"))

    assert any(isinstance(event, TurnEnd | TurnFailed) for event in events)


# A recorded stream that was damaged: no exception, and one ending all the same.


def damaged(lines: list[bytes], number: int) -> dict[str, list[bytes]]:
    before, line, after = lines[:number], lines[number], lines[number + 1 :]
    middle = len(line) // 2
    return {
        "missing": [*before, *after],
        "twice": [*before, line, line, *after],
        "cut short": [*before, line[:middle], *after],
        "its newline lost": [*before, line.rstrip(b"\n"), *after],
        "cut by a newline": [*before, line[:middle], b"\n", line[middle:], *after],
        "a bit flipped": [*before, line[:middle], bytes((line[middle] ^ 1,)), line[middle + 1 :]],
        "nothing behind it": [*before, line],
        "after all others": [*before, *after, line],
    }


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_a_damaged_transcript_raises_nothing_and_ends_once(case: Path) -> None:
    lines = case.read_bytes().splitlines(keepends=True)
    step = -(-len(lines) // DAMAGED_LINES)  # long ones repeat themselves
    for number in range(0, len(lines), step or 1):
        for how, chunks in damaged(lines, number).items():
            client = Client()
            for frame in play(new_driver(case.parent.name), chunks, exit_of(case)).frames:
                client.receive(frame)
            assert client.final is not None, f"line {number + 1} {how}"
