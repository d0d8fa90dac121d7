"""Notes are bounded: bad bytes must not fill the log."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from capsule_runtime import Note, TurnEnd
from capsule_runtime.core.facts import Ended, Noted, SpendClosed
from capsule_runtime.core.notes import (
    NOTE_BYTES,
    NOTE_BYTES_PER_RUN,
    NOTES_PER_RUN,
    NoteBudget,
)
from support.script import Script


def test_the_bounds() -> None:
    assert (NOTE_BYTES, NOTES_PER_RUN, NOTE_BYTES_PER_RUN) == (4096, 1000, 1024 * 1024)


def test_a_short_note_is_kept_whole() -> None:
    assert NoteBudget().admit("a\x00\x1b[31mé\u2028") == "a\x00\x1b[31mé\u2028"


def test_a_long_note_is_cut_at_its_bytes() -> None:
    assert NoteBudget().admit("x" * 5000) == "x" * 4096


def test_a_character_is_not_cut_in_two() -> None:
    note = NoteBudget().admit("x" + "é" * 3000)

    assert note == "x" + "é" * 2047


def test_half_a_character_does_no_harm() -> None:
    assert NoteBudget().admit("a\ud83d") == "a?"


def test_a_thousand_notes_are_admitted_and_the_rest_is_counted() -> None:
    budget = NoteBudget()

    admitted = [budget.admit("n") for _ in range(1234)]

    assert admitted.count("n") == 1000
    assert budget.dropped == 234


def test_a_mebibyte_is_admitted_and_the_rest_is_counted() -> None:
    budget = NoteBudget()

    admitted = [budget.admit("x" * 4096) for _ in range(300)]

    assert sum(note is not None for note in admitted) == 256
    assert budget.dropped == 44


def test_one_counting_note_stands_before_the_end() -> None:
    script = Script()
    script.say(*[Note("n")] * 1002)
    script.say(TurnEnd("r"), Note("late"))

    script.end()

    *_, last, closed, ended = script.facts
    assert isinstance(ended, Ended)
    assert isinstance(closed, SpendClosed)
    assert isinstance(last, Noted)
    assert last.text == "3 more notes were dropped"
    assert sum(isinstance(fact, Noted) for fact in script.facts) == 1001


@given(st.lists(st.text(alphabet=st.characters(), max_size=9000), max_size=40))
def test_no_flood_of_notes_passes_the_bounds(texts: list[str]) -> None:
    budget = NoteBudget()

    admitted = [note for text in texts if (note := budget.admit(text)) is not None]

    sizes = [len(note.encode()) for note in admitted]
    assert all(size <= NOTE_BYTES for size in sizes)
    assert sum(sizes) <= NOTE_BYTES_PER_RUN
    assert len(admitted) + budget.dropped == len(texts)
