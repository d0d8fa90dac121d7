"""Recorded outputs, damaged at random: whatever a harness writes, a run has one end and no fault."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from capsule_runtime.driver import driver_names
from support.client import Client
from support.player import chunks_of, exit_of, new_driver, play

TRANSCRIPTS = Path(__file__).parent / "transcripts"
CASES = [
    path
    for name in driver_names()
    for path in sorted((TRANSCRIPTS / name).glob("*.jsonl"))
    if not path.stem.endswith((".events", ".frames"))
]
Lines = list[bytes]
Damage = tuple[str, int, int]


def swapped(lines: Lines, at: int, other: int) -> Lines:
    lines[at], lines[other] = lines[other], lines[at]
    return lines


def flipped(line: bytes, at: int) -> bytes:
    place = at % len(line)
    return line[:place] + bytes((line[place] ^ (1 << at % 8),)) + line[place + 1 :]


DAMAGES: dict[str, Callable[[Lines, int, int], Lines]] = {
    "missing": lambda lines, at, _: lines[:at] + lines[at + 1 :],
    "twice": lambda lines, at, other: [*lines[:other], lines[at], *lines[other:]],
    "swapped": swapped,
    "cut short": lambda lines, at, size: [*lines[:at], lines[at][:size], *lines[at + 1 :]],
    "a bit flipped": lambda lines, at, where: [
        *lines[:at],
        flipped(lines[at], where),
        *lines[at + 1 :],
    ],
    "nothing behind it": lambda lines, at, _: lines[: at + 1],
}


def damaged(stream: bytes, damages: list[Damage]) -> bytes:
    lines = stream.splitlines(keepends=True)
    for how, at, where in damages:
        if lines := [line for line in lines if line]:
            other = where % len(lines) if how in ("twice", "swapped") else where
            lines = DAMAGES[how](lines, at % len(lines), other)
    return b"".join(lines)


numbers = st.integers(0, 2**16)
damages = st.lists(st.tuples(st.sampled_from(sorted(DAMAGES)), numbers, numbers), max_size=6)


@settings(max_examples=400)
@given(st.sampled_from(CASES), damages, st.sampled_from((7, 300, 65536)))
def test_any_damage_raises_nothing_and_leaves_one_end(
    case: Path, damages: list[Damage], size: int
) -> None:
    stream = damaged(case.read_bytes(), damages)
    client = Client()

    for frame in play(new_driver(case.parent.name), chunks_of(stream, size), exit_of(case)).frames:
        client.receive(frame)

    assert client.final is not None
