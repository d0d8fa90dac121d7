"""In which mode a run has its work directory, and how what it changed is told."""

from __future__ import annotations

import itertools

import pytest

from capsule_runtime.core.work import (
    POWER,
    SHOWN,
    Tally,
    WorkdirMode,
    mode_of,
    shortened,
    show_path,
)
from capsule_runtime.errors import UsageError


@pytest.mark.parametrize("asked", POWER)
@pytest.mark.parametrize("holds_capsule", [True, False])
def test_a_manifest_says_the_mode(asked: WorkdirMode, holds_capsule: bool) -> None:
    assert mode_of(asked, None, holds_capsule=holds_capsule) == asked


def test_without_a_word_it_is_in_place_unless_the_capsule_lies_there() -> None:
    assert mode_of(None, None, holds_capsule=False) == "rw"
    assert mode_of(None, None, holds_capsule=True) == "copy"


@pytest.mark.parametrize("wanted", POWER)
def test_a_caller_chooses_freely_where_the_manifest_is_silent(wanted: WorkdirMode) -> None:
    assert mode_of(None, wanted, holds_capsule=True) == wanted


@pytest.mark.parametrize(("asked", "wanted"), [*itertools.product(POWER, POWER)])
def test_a_caller_gets_no_more_than_the_manifest_asks_for(
    asked: WorkdirMode, wanted: WorkdirMode
) -> None:
    if POWER.index(wanted) <= POWER.index(asked):
        assert mode_of(asked, wanted, holds_capsule=False) == wanted
        return
    with pytest.raises(UsageError) as refused:
        mode_of(asked, wanted, holds_capsule=False)

    assert refused.value.code == "E-USE-053"
    assert repr(asked) in refused.value.message


def test_a_tally_says_what_there_is() -> None:
    assert str(Tally(1, 0, 2)) == "1 added, 2 removed"
    assert str(Tally()) == "nothing changed"
    assert Tally(1, 2, 3).total == 6


def test_any_path_can_be_written_down() -> None:
    assert show_path(b"a\xff\n\xc3\xa9") == "a\ufffd\n\u00e9"
    assert len(show_path(b"x" * 4000)) == 1025


def test_of_very_many_the_first_are_named_and_all_are_counted() -> None:
    named, count = shortened([(f"{number:03}", "why") for number in reversed(range(SHOWN + 7))])

    assert [one.path for one in named] == [f"{number:03}" for number in range(SHOWN)]
    assert count == SHOWN + 7
