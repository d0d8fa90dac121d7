from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capsule_runtime.core.chain import START, Link, Row, find_flaw, find_miscount, forge

ROW = Row(1, 2, b'{"seq":1}\n{"seq":2}\n')
NEXT = Row(3, 3, b'{"seq":3}\n')


def test_the_hash_of_a_row_never_changes() -> None:
    """Stored logs depend on it."""
    expected = "96ceb2846739e787103ca35aa5fde2e14ece09e4973d814c2ed500d80cfaefbe"

    assert forge(START.hash, "run_1", ROW).hex() == expected


@pytest.mark.parametrize(
    "changed",
    [
        Row(2, 2, ROW.body),
        Row(1, 3, ROW.body),
        Row(1, 2, ROW.body + b"\n"),
        Row(1, 2, b""),
    ],
)
def test_every_part_of_a_row_counts(changed: Row) -> None:
    assert forge(START.hash, "run_1", changed) != forge(START.hash, "run_1", ROW)


def test_the_run_and_the_row_before_count() -> None:
    hashes = {
        forge(START.hash, "run_1", ROW),
        forge(START.hash, "run_2", ROW),
        forge(bytes([1] * 32), "run_1", ROW),
    }

    assert len(hashes) == 3


def test_a_chain_that_fits_has_no_flaw() -> None:
    first = forge(START.hash, "run_1", ROW)
    second = forge(first, "run_1", NEXT)

    assert find_flaw(START, "run_1", ROW, first) is None
    assert find_flaw(Link(2, first), "run_1", NEXT, second) is None


def test_a_gap_is_named_by_the_first_missing_entry() -> None:
    stored = forge(START.hash, "run_1", NEXT)

    assert find_flaw(START, "run_1", NEXT, stored) == "entry 1 is missing"


def test_a_row_after_another_row_than_before_is_found() -> None:
    stored = forge(bytes([1] * 32), "run_1", NEXT)

    flaw = find_flaw(Link(2, bytes([2] * 32)), "run_1", NEXT, stored)

    assert flaw == "its hash does not fit its bytes and the row before it"


@pytest.mark.parametrize(
    ("body", "flaw"),
    [
        (b"1\n2\n", None),
        (b"1\n", "it holds 1 lines and says 2"),
        (b"1\n2\n3\n", "it holds 3 lines and says 2"),
        (b"1\n2\n3", "its last line has no end"),
    ],
)
def test_a_row_holds_as_many_lines_as_entries(body: bytes, flaw: str | None) -> None:
    assert find_miscount(Row(1, 2, body)) == flaw


def test_a_row_beyond_an_entry_begins_after_it() -> None:
    row = Row(4, 6, b"a\nb\nc\n")

    assert row.beyond(3) == row
    assert row.beyond(4) == Row(5, 6, b"b\nc\n")
    assert row.beyond(5) == Row(6, 6, b"c\n")


def test_clients_see_the_frames_of_a_row_byte_for_byte() -> None:
    frame, fact = b'{"type":"text","seq":1}\n', b'{"fact":"noted","seq":2}\n'
    nested = b'{"type":"artifact","seq":3,"content":{"fact":1}}\n'

    assert Row(1, 1, frame).frames() == frame
    assert Row(2, 2, fact).frames() == b""
    assert Row(1, 3, frame + fact + nested).frames() == frame + nested


@given(st.lists(st.booleans(), min_size=1, max_size=12))
def test_frames_are_the_lines_that_are_no_facts_in_any_order(order: list[bool]) -> None:
    lines = [b'{"type":"text","text":"a\\n{"}\n' if it else b'{"fact":"said"}\n' for it in order]
    frames = [line for line in lines if b"fact" not in line]

    assert Row(1, len(lines), b"".join(lines)).frames() == b"".join(frames)
