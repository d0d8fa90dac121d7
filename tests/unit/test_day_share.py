"""How a day's ceiling is cut into slices."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capsule_runtime.core.ceilings import Ceiling, DayCeilings, DayReached
from capsule_runtime.core.day_share import Needs, Share, slice_of

amount = st.integers(0, 10**9)


@given(amount, amount, amount)
def test_no_slice_is_cut_from_what_is_not_there(ceiling: int, taken: int, wanted: int) -> None:
    assert 0 <= slice_of(ceiling, taken, wanted) <= max(0, ceiling - taken)


@given(amount, amount, amount)
def test_who_wants_something_gets_it_if_there_is_enough(
    ceiling: int, taken: int, wanted: int
) -> None:
    assert slice_of(ceiling, taken, wanted) >= min(wanted, max(0, ceiling - taken))


@given(st.integers(1, 10**9))
def test_a_ceiling_is_used_up_in_few_slices(ceiling: int) -> None:
    taken = slices = 0
    while taken < ceiling:
        taken += slice_of(ceiling, taken, 1)
        slices += 1

    assert slices <= 64


def test_who_wants_nothing_gets_nothing() -> None:
    assert slice_of(1000, 0, 0) == slice_of(1000, 0, -5) == 0


def test_the_first_slice_leaves_something_to_others() -> None:
    assert slice_of(8000, 0, 1) == 1000


@pytest.mark.parametrize(
    ("needs", "lack"),
    [
        (Needs(0, 0), None),
        (Needs(0, 60, 0, 20), None),
        (Needs(0, 61, 0, 20), DayReached(Ceiling.TOKENS, "d", 500, 300, 39, 20)),
        (Needs(0, 100), DayReached(Ceiling.TOKENS, "d", 500, 300, 0)),
        (Needs(7, 100), DayReached(Ceiling.USD, "d", 9, 8, 0)),
        (Needs(3, 0, 3), DayReached(Ceiling.USD, "d", 9, 8, 4, 3)),
    ],
)
def test_what_a_share_is_too_small_for(needs: Needs, lack: DayReached | None) -> None:
    share = Share("d", DayCeilings(9, 500), 7, 100, 8, 300)

    assert share.lack(needs) == lack


def test_more_calls_need_more_room() -> None:
    share = Share("d", DayCeilings(tokens=500), None, 100)

    assert share.lack(Needs(0, 40, 0, 20), 3) is None
    assert share.lack(Needs(0, 41, 0, 20), 3) is not None


def test_a_dimension_without_a_ceiling_lacks_nothing() -> None:
    assert Share("d", DayCeilings(), None, None).lack(Needs(10**9, 10**9, 5, 5)) is None
