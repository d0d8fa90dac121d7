"""Calls side by side never take more than there is, alone, in a tree of runs and after a crash."""

from __future__ import annotations

from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capsule_runtime.core.gateway.reservations import (
    NOTHING,
    Account,
    Amount,
    Limit,
    NoRoom,
    Reservation,
)


def dollars(microusd: int) -> Limit:
    return Limit(microusd=microusd)


def held(account: Account, microusd: int, tokens: int = 0) -> Reservation:
    reservation = account.reserve(Amount(microusd, tokens))
    assert isinstance(reservation, Reservation)
    return reservation


def test_fifty_calls_at_once_against_a_ceiling_that_fits_seven() -> None:
    account = Account("run", dollars(7_500))
    made = [account.reserve(Amount(1_000)) for _ in range(50)]

    assert sum(isinstance(one, Reservation) for one in made) == 7
    assert made[7] == NoRoom("run", "usd", 1_000, 500, 7_500)
    assert account.taken.microusd == 7_000


def test_what_a_call_did_not_cost_is_there_for_the_next() -> None:
    account = Account("run", dollars(1_000))
    held(account, 900).settle(Amount(100))

    assert account.settled.microusd == 100
    assert account.reserved == NOTHING
    assert account.room_microusd == 900


def test_all_may_be_spent_to_the_last_microdollar() -> None:
    account = Account("run", dollars(1_000))
    held(account, 1_000).settle(Amount(1_000))

    assert isinstance(account.reserve(Amount(1)), NoRoom)
    assert isinstance(account.reserve(Amount(0)), Reservation)


def test_tokens_have_a_ceiling_of_their_own() -> None:
    account = Account("run", Limit(tokens=100))
    held(account, 10**9, 60)

    assert account.reserve(Amount(0, 50)) == NoRoom("run", "tokens", 50, 40, 100)


def test_a_call_of_which_nobody_tells_the_cost_keeps_what_was_held() -> None:
    account = Account("run", dollars(1_000))
    held(account, 300).charge_estimate()
    held(account, 200).charge_estimate(Amount(150))

    assert account.settled == Amount(450)
    assert account.estimated == Amount(450)


def test_a_call_that_was_cut_off_counts_as_a_figure_of_its_own() -> None:
    account = Account("run", dollars(1_000))
    held(account, 300).leave_unsettled()

    assert (account.settled, account.unsettled) == (NOTHING, Amount(300))
    assert account.room_microusd == 700


def test_a_call_that_was_not_sent_costs_nothing() -> None:
    account = Account("run", dollars(1_000))
    held(account, 300).release()

    assert account.taken == NOTHING


def test_a_child_spends_from_its_parent() -> None:
    day = Account("day", dollars(5_000))
    parent = Account("parent", dollars(1_000), day)
    child, other = Account("child", dollars(900), parent), Account("other", Limit(), parent)
    first = held(child, 800)

    assert other.reserve(Amount(300)) == NoRoom("parent", "usd", 300, 200, 1_000)
    assert other.reserved == NOTHING
    assert other.room_microusd == 200
    first.settle(Amount(500))
    held(other, 300).settle(Amount(300))
    assert [one.settled.microusd for one in (child, other, parent, day)] == [500, 300, 800, 800]


def test_what_has_no_room_above_is_held_nowhere() -> None:
    parent = Account("parent", dollars(100))
    child = Account("child", dollars(1_000), parent)

    assert isinstance(child.reserve(Amount(200)), NoRoom)
    assert (child.reserved, parent.reserved) == (NOTHING, NOTHING)


def test_an_account_begins_with_what_a_log_says() -> None:
    account = Account("run", dollars(1_000), settled=Amount(300), unsettled=Amount(400))

    assert account.room_microusd == 300


def test_a_ceiling_may_be_raised_while_calls_are_under_way() -> None:
    account = Account("run", dollars(100))
    held(account, 100)
    assert isinstance(account.reserve(Amount(50)), NoRoom)
    account.set_limit(dollars(150))

    assert isinstance(account.reserve(Amount(50)), Reservation)


def test_a_call_that_cost_more_than_was_proven_counts_in_full_and_shows() -> None:
    account = Account("run", dollars(1_000))
    held(account, 900).settle(Amount(1_200))

    assert account.settled.microusd == 1_200
    assert account.overshoot == Amount(300)
    assert account.room_microusd == 0
    assert isinstance(account.reserve(Amount(1)), NoRoom)


def test_a_reservation_ends_once() -> None:
    reservation = held(Account("run", Limit()), 1)
    reservation.release()

    with pytest.raises(AssertionError, match="ends once"):
        reservation.settle(Amount(1))


AMOUNTS = st.builds(Amount, st.integers(0, 400), st.integers(0, 400))
LIMITS = st.builds(Limit, st.none() | st.integers(0, 1_000), st.none() | st.integers(0, 1_000))
End = Literal["settle", "release", "estimate", "unsettled"]
STEPS = st.lists(
    st.tuples(
        st.integers(0, 3),
        AMOUNTS,
        st.sampled_from(["begin", "settle", "release", "estimate", "unsettled"]),
        st.floats(0, 1),
    ),
    max_size=60,
)


def is_within(account: Account) -> bool:
    taken, limit = account.taken, account.limit
    return (limit.microusd is None or taken.microusd <= limit.microusd) and (
        limit.tokens is None or taken.tokens <= limit.tokens
    )


def end(reservation: Reservation, how: str, part: float) -> None:
    worst = reservation.worst
    match how:
        case "settle":
            reservation.settle(Amount(int(worst.microusd * part), int(worst.tokens * part)))
        case "release":
            reservation.release()
        case "estimate":
            reservation.charge_estimate()
        case _:
            reservation.leave_unsettled()


@given(LIMITS, LIMITS, LIMITS, LIMITS, STEPS)
def test_in_any_order_no_ceiling_is_passed(
    day: Limit, run: Limit, one: Limit, other: Limit, steps: list[tuple[int, Amount, str, float]]
) -> None:
    """Four accounts in a tree; calls begin and end in any order, and cost no more than proven."""
    top = Account("day", day)
    parent = Account("run", run, top)
    accounts = [top, parent, Account("one", one, parent), Account("other", other, parent)]
    under_way: list[Reservation] = []
    for place, amount, step, part in steps:
        if step == "begin" or not under_way:
            made = accounts[place].reserve(amount)
            under_way += [made] if isinstance(made, Reservation) else []
        else:
            end(under_way.pop(place % len(under_way)), step, part)
        assert all(is_within(account) for account in accounts)
        assert all(account.overshoot == NOTHING for account in accounts)
    for reservation in under_way:
        reservation.leave_unsettled()
    assert all(account.reserved == NOTHING for account in accounts)
    assert all(is_within(account) for account in accounts)
    assert top.settled.microusd >= parent.settled.microusd
    assert parent.settled.microusd >= sum(one.settled.microusd for one in accounts[2:])


@given(st.lists(AMOUNTS, max_size=20), LIMITS)
def test_a_call_is_refused_only_where_it_has_no_room(amounts: list[Amount], limit: Limit) -> None:
    account = Account("run", limit)
    for amount in amounts:
        before = account.taken
        made = account.reserve(amount)
        would_be = Account("run", limit, settled=before + amount)
        assert isinstance(made, Reservation) == is_within(would_be)
