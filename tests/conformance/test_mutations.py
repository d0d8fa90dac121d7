"""Recorded outputs of every driver with something in them that does not belong there.

A line too many costs nothing but a note; a line that is damaged costs that line. Whatever happens,
nothing is raised and there is one end.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capsule_runtime import (
    Activity,
    Event,
    FailureKind,
    Note,
    StatusFrame,
    TextDelta,
    ThinkingDelta,
    TurnEnd,
    TurnFailed,
    Usage,
)
from capsule_runtime.core.calls import UsageTotal
from capsule_runtime.core.usage import UsageFold
from capsule_runtime.driver import driver_names
from support.client import Client
from support.player import chunks_of, exit_of, new_driver, play

TRANSCRIPTS = Path(__file__).parent / "transcripts"
EXAMPLES = 40
"""Of mutated recordings, for each driver."""
PLACES = 12
"""At how many places, at most, a recording gets a line too many."""
NOISE = (
    b"npm warn deprecated something\n",
    b"\x1b[31mtrouble\x1b[0m\n",
    b"\xff\xfe\x00 no text at all\n",
    b"{}\n",
    b"[]\n",
    b"null\n",
    b"42\n",
    b'"words"\n',
    b'{"type":"something new"}\n',
    b'{"type":7}\n',
    b'{"type":\n',
    b"[" * 5000 + b"\n",
)
HEAR_NOTHING_TWICE = ("claude-code", "mini-swe-agent", "qwen-code")
"""Drivers whose harness names its lines, or tells all at once."""
Lines = list[bytes]


@cache
def lines_of(case: Path) -> tuple[bytes, ...]:
    return tuple(case.read_bytes().splitlines(keepends=True))


def cases(driver: str) -> list[Path]:
    found = sorted((TRANSCRIPTS / driver).glob("*.jsonl"))
    return [path for path in found if not path.stem.endswith((".events", ".frames"))]


CASES = [path for name in driver_names() for path in cases(name)]
by_case = pytest.mark.parametrize("case", CASES, ids=lambda p: f"{p.parent.name}-{p.stem}")
by_case_that_is_heard_once = pytest.mark.parametrize(
    "case",
    [path for name in HEAR_NOTHING_TWICE for path in cases(name)],
    ids=lambda p: f"{p.parent.name}-{p.stem}",
)


def heard(case: Path, lines: Lines) -> list[Event]:
    """Return what comes of *lines*, without what a line that cannot be read may add."""
    played = play(new_driver(case.parent.name), lines, exit_of(case))
    return [event for event in played.events if not is_beside(event)]


def is_beside(event: Event) -> bool:
    """Tell whether *event* says only that something was not understood."""
    if isinstance(event, Usage):
        return event.input_tokens is None and event.output_tokens is None
    return isinstance(event, Note | Activity)


def places(lines: Lines) -> list[int]:
    """Return places between *lines*, the ends among them."""
    step = max(1, len(lines) // PLACES)
    return sorted({*range(0, len(lines) + 1, step), len(lines)})


@by_case
def test_line_ends_of_windows_change_nothing(case: Path) -> None:
    lines = list(lines_of(case))

    crlf = [line.replace(b"\n", b"\r\n") for line in lines]

    assert heard(case, crlf) == heard(case, lines)


@by_case
def test_blank_lines_change_nothing(case: Path) -> None:
    lines = list(lines_of(case))

    spaced = [part for line in lines for part in (b"\n", b"  \r\n", line)]

    assert heard(case, spaced) == heard(case, lines)


@by_case
def test_noise_between_lines_costs_no_neighbour(case: Path) -> None:
    lines = list(lines_of(case))
    whole = heard(case, lines)

    for place in places(lines):
        noisy = [*lines[:place], *NOISE, *lines[place:]]

        assert heard(case, noisy) == whole, f"before line {place + 1}"


@by_case
def test_half_a_line_costs_no_neighbour(case: Path) -> None:
    """But for half of the line that ends the turn: nobody waits for it to come whole."""
    lines = list(lines_of(case))
    whole = heard(case, lines)

    for place in places(lines)[:-1]:
        half = lines[place][: len(lines[place]) // 2].rstrip() + b"\n"
        if is_taken_for_the_end(case, [*lines[:place], half]):
            continue

        assert heard(case, [*lines[:place], half, *lines[place:]]) == whole, f"line {place + 1}"


def is_taken_for_the_end(case: Path, lines: Lines) -> bool:
    """Tell whether *lines* end a turn of which nobody can tell how it ended."""
    ends = [it for it in heard_so_far(case, lines) if isinstance(it, TurnFailed)]
    return [end.kind for end in ends] == [FailureKind.INDETERMINATE]


@by_case_that_is_heard_once
def test_a_line_that_comes_twice_is_heard_once(case: Path) -> None:
    lines = list(lines_of(case))
    whole = heard(case, lines)

    for place in places(lines)[:-1]:
        for again in {place + 1, len(lines)}:
            twice = [*lines[:again], lines[place], *lines[again:]]

            assert heard(case, twice) == whole, f"line {place + 1}, again at {again + 1}"


@by_case
def test_a_damaged_line_changes_nothing_of_what_came_before(case: Path) -> None:
    lines = list(lines_of(case))

    for place in places(lines)[:-1]:
        before = heard_so_far(case, lines[:place])
        cut = [*lines[:place], lines[place][: len(lines[place]) // 2] + b"\n", *lines[place + 1 :]]

        assert heard(case, cut)[: len(before)] == before, f"line {place + 1}"


def heard_so_far(case: Path, lines: Lines) -> list[Event]:
    """Return what comes of *lines* while more may follow."""
    driver = new_driver(case.parent.name)
    said = driver.receive(b"".join(lines)) if lines else ()
    return [it for it in said if isinstance(it, Event) and not is_beside(it)]


@pytest.mark.parametrize("case", [c for n in ("acp", "gemini", "opencode") for c in cases(n)])
def test_a_line_that_comes_twice_is_counted_once(case: Path) -> None:
    """Only fragments have no name of their own, so two that are equal are two."""
    lines = list(lines_of(case))
    whole = [event for event in heard(case, lines) if not is_fragment(event)]

    for place in places(lines)[:-1]:
        for behind in (place, len(lines)):
            twice = [*lines[:behind], lines[place], *lines[behind:]]
            again = [event for event in heard(case, twice) if not is_fragment(event)]

            assert [*map(type, again)] == [*map(type, whole)], f"line {place + 1}"
            assert total_of(again) == total_of(whole), f"line {place + 1}"


def is_fragment(event: Event) -> bool:
    """Tell whether *event* is a piece of words that are streamed."""
    return isinstance(event, TextDelta | ThinkingDelta)


def total_of(events: list[Event]) -> UsageTotal:
    """Return what *events* say was used."""
    fold = UsageFold()
    for event in events:
        if isinstance(event, Usage):
            fold.apply(event)
    return fold.total


Mutation = Callable[[Lines, int, int], Lines]


def dropped(lines: Lines, one: int, _: int) -> Lines:
    return [*lines[:one], *lines[one + 1 :]]


def doubled(lines: Lines, one: int, other: int) -> Lines:
    return [*lines[:other], lines[one], *lines[other:]]


def swapped(lines: Lines, one: int, other: int) -> Lines:
    changed = list(lines)
    changed[one], changed[other] = lines[other], lines[one]
    return changed


def shortened(lines: Lines, one: int, other: int) -> Lines:
    cut = other % (len(lines[one]) or 1)
    return [*lines[:one], lines[one][:cut] + b"\n", *lines[one + 1 :]]


def grown_together(lines: Lines, one: int, _: int) -> Lines:
    return [*lines[:one], lines[one].rstrip(b"\n"), *lines[one + 1 :]]


def noisy(lines: Lines, one: int, other: int) -> Lines:
    return [*lines[:one], NOISE[other % len(NOISE)], *lines[one:]]


def flipped(lines: Lines, one: int, other: int) -> Lines:
    line = bytearray(lines[one])
    if line:
        line[other % len(line)] ^= 1 << (other % 8)
    return [*lines[:one], bytes(line), *lines[one + 1 :]]


def stopped(lines: Lines, one: int, _: int) -> Lines:
    return lines[:one]


def renumbered(lines: Lines, one: int, other: int) -> Lines:
    numbers = (b"-1", b"1e400", b"99999999999999999999", b"null", b'"1"', b"1.5")
    changed = lines[one].replace(b":1", b":" + numbers[other % len(numbers)])
    return [*lines[:one], changed, *lines[one + 1 :]]


MUTATIONS: tuple[Mutation, ...] = (
    dropped,
    doubled,
    swapped,
    shortened,
    grown_together,
    noisy,
    flipped,
    stopped,
    renumbered,
)
mutations = st.lists(
    st.tuples(st.sampled_from(MUTATIONS), st.integers(0, 2**16), st.integers(0, 2**16)),
    min_size=1,
    max_size=6,
)


@pytest.mark.parametrize("driver", driver_names())
def test_however_an_output_is_damaged_it_ends_once(driver: str) -> None:
    @settings(max_examples=EXAMPLES)
    @given(st.sampled_from(cases(driver)), mutations, st.sampled_from((17, 1000, 65536)))
    def check(case: Path, how: list[tuple[Mutation, int, int]], size: int) -> None:
        lines = list(lines_of(case))
        for mutate, one, other in how:
            if lines:
                lines = mutate(lines, one % len(lines), other % len(lines))

        chunks = chunks_of(b"".join(lines), size)
        played = play(new_driver(driver), chunks, exit_of(case))

        client = Client()
        for frame in played.frames:
            client.receive(frame)
        finals = [f for f in played.frames if isinstance(f, StatusFrame) and f.final]
        assert finals == [played.frames[-1]]
        ends = [event for event in played.events if isinstance(event, TurnEnd | TurnFailed)]
        assert len(ends) == 1
        msgspec.json.Encoder().encode_lines(played.events)

    check()
