"""A run whose calls pass the gateway: the account is of these, and the harness is a cross-check."""

from __future__ import annotations

import pytest

from capsule_runtime.core.actions import Burial
from capsule_runtime.core.ceilings import Ceilings
from capsule_runtime.core.facts import Noted, SpendClosed
from capsule_runtime.core.gateway.reservations import Account, Amount, Limit, Reservation
from capsule_runtime.core.journal import Append, Moment
from capsule_runtime.core.ledger import Ledger
from capsule_runtime.core.run import Run
from capsule_runtime.events import TurnEnd, Usage
from capsule_runtime.messages import Exit

NOW = Moment("2026-01-31T10:00:00.000000Z", 0.0)


def account_of(tokens: int) -> Account:
    account = Account("the run's ceiling", Limit(microusd=10))
    held = account.reserve(Amount(5, tokens))
    assert isinstance(held, Reservation)
    held.settle(Amount(5, tokens))
    return account


def facts_of(ledger: Ledger, claimed: int) -> list[object]:
    """Return the facts of a run whose harness says that it used so many tokens."""
    run = Run("r", "c", ledger=ledger)
    actions = [
        *run.launched(1, NOW),
        *run.receive([Usage("acme:large", claimed, 0), TurnEnd("done")], NOW),
        *run.end(Exit(0, None, b"", {}), Burial(0, 0, 1), [], NOW),
    ]
    return [fact for action in actions if isinstance(action, Append) for fact in action.facts]


@pytest.mark.parametrize(("claimed", "is_noted"), [(100, False), (101, True)])
def test_it_is_noted_where_the_harness_tells_of_more(claimed: int, is_noted: bool) -> None:
    found = facts_of(Ledger(account=account_of(100)), claimed)

    notes = [fact.text for fact in found if isinstance(fact, Noted)]
    told = f"the harness tells of {claimed} tokens, and 100 passed the gateway"
    assert (told in notes) is is_noted


def test_what_the_harness_tells_is_not_entered() -> None:
    ceilings = Ceilings(tokens=50)
    found = facts_of(Ledger(ceilings, account=account_of(7)), 1_000)

    [closed] = [fact for fact in found if isinstance(fact, SpendClosed)]
    assert closed.settled.charged == Amount(5, 7)
    assert closed.settled.counted == Amount(5, 7)
    assert closed.settled.tokens is None


def test_what_is_held_at_the_end_is_unsettled() -> None:
    account = account_of(7)
    account.reserve(Amount(3, 30))

    settled = Ledger(account=account).settled()

    assert settled.charged == Amount(8, 37)
    assert settled.unsettled == Amount(3, 30)
