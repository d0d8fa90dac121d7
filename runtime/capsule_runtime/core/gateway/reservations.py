"""What calls under way may cost at most is taken from what is left before they are sent.

An account has a ceiling, and a parent if what it spends is its parent's, too: a run that another
one started, a run of a day. A reservation is made in all accounts of the chain or in none of them,
in one step without a pause, so that calls side by side never see the same room. So for each account,
at any time, settled + reserved + unsettled is at most its ceiling, as long as no call costs more
than was proven. Should one do, all of it counts, and it is told as *overshoot*.

How it stands beside what there is: a `Ledger` folds what was reported after a call, and its `Purse`
stops a run that has too little left for another: that is for runs whose calls nobody sees before.
Where the gateway sees them, an `Account` is asked first, and the ledger is fed from what it settles.
A day's ceiling is an account, too: its limit is the run's `Share`, which `slice_of` made larger than
any one call, and `set_limit` is told of each new slice.

No clock and no storage: an account begins with what a log says was settled, and what was cut off by
a crash and never settled.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from msgspec import Struct


class Amount(Struct, frozen=True, gc=False):
    """Micro-dollars and tokens."""

    microusd: int = 0
    tokens: int = 0

    def __add__(self, other: Amount) -> Amount:
        """Return both."""
        return Amount(self.microusd + other.microusd, self.tokens + other.tokens)

    def __bool__(self) -> bool:
        """Whether it is anything."""
        return bool(self.microusd or self.tokens)

    def __sub__(self, other: Amount) -> Amount:
        """Return this without *other*."""
        return Amount(self.microusd - other.microusd, self.tokens - other.tokens)


NOTHING = Amount()


class Limit(Struct, frozen=True):
    """The most that may be spent. None is no ceiling."""

    microusd: int | None = None
    tokens: int | None = None


class NoRoom(Struct, frozen=True):
    """There is no room for *wanted* in the account *name*, which has *room* left of *limit*."""

    name: str
    unit: Literal["usd", "tokens"]
    wanted: int
    room: int
    limit: int


class Reservation:
    """What is held for one call. It ends once, in one of four ways."""

    def __init__(self, account: Account, worst: Amount) -> None:
        self.worst = worst
        self._account = account
        self._is_open = True

    @property
    def is_open(self) -> bool:
        """Whether it has not ended."""
        return self._is_open

    def settle(self, actual: Amount) -> None:
        """Charge what the call cost."""
        self._end(actual, NOTHING, NOTHING)

    def release(self) -> None:
        """Charge nothing: the call was never sent, or the provider refused it."""
        self._end(NOTHING, NOTHING, NOTHING)

    def charge_estimate(self, estimate: Amount | None = None) -> None:
        """Charge what was held, or *estimate*: nobody told what the call cost."""
        amount = self.worst if estimate is None else estimate
        self._end(amount, amount, NOTHING)

    def leave_unsettled(self) -> None:
        """Keep what was held as a figure of its own: the call was cut off, and may cost so much."""
        self._end(NOTHING, NOTHING, self.worst)

    def _end(self, settled: Amount, estimated: Amount, unsettled: Amount) -> None:
        assert self._is_open, "a reservation ends once"
        self._is_open = False
        for account in self._account.chain():
            account.move(self.worst, settled, estimated, unsettled)


class Account:
    """What may be spent, and what was. *name* is for people."""

    def __init__(
        self,
        name: str,
        limit: Limit,
        parent: Account | None = None,
        *,
        settled: Amount = NOTHING,
        estimated: Amount = NOTHING,
        unsettled: Amount = NOTHING,
    ) -> None:
        """*settled*, of which some was *estimated*, and *unsettled* are what a log says.

        They are this account's own: those of a parent have them, too.
        """
        self.name = name
        self.limit = limit
        self.settled = settled
        self.estimated = estimated
        self.unsettled = unsettled
        self.reserved = NOTHING
        self.overshoot = NOTHING
        self.parent = parent

    @property
    def taken(self) -> Amount:
        """Return what counts against the limit."""
        return self.settled + self.reserved + self.unsettled

    @property
    def room_microusd(self) -> int | None:
        """Return what is left in the chain, in micro-dollars; None without a ceiling."""
        rooms = [
            account.limit.microusd - account.taken.microusd
            for account in self.chain()
            if account.limit.microusd is not None
        ]
        return max(0, min(rooms)) if rooms else None

    @property
    def room_tokens(self) -> int | None:
        """Return what is left in the chain, in tokens; None without a ceiling."""
        rooms = [
            account.limit.tokens - account.taken.tokens
            for account in self.chain()
            if account.limit.tokens is not None
        ]
        return max(0, min(rooms)) if rooms else None

    def chain(self) -> Iterator[Account]:
        """Yield this account and those that it spends from."""
        account: Account | None = self
        while account is not None:
            yield account
            account = account.parent

    def reserve(self, worst: Amount) -> Reservation | NoRoom:
        """Hold *worst* in every account of the chain, or in none."""
        assert worst.microusd >= 0 <= worst.tokens, "nobody gives back what they did not take"
        for account in self.chain():
            if (lack := account.lack(worst)) is not None:
                return lack
        for account in self.chain():
            account.reserved += worst
        return Reservation(self, worst)

    def set_limit(self, limit: Limit) -> None:
        """Take another *limit*, such as that of a new slice of a day, or of an extension."""
        self.limit = limit

    def lack(self, worst: Amount) -> NoRoom | None:
        """Return why *worst* has no room in this account alone, if it has none."""
        taken = self.taken
        if (limit := self.limit.microusd) is not None:
            room = limit - taken.microusd
            if worst.microusd > room:
                return NoRoom(self.name, "usd", worst.microusd, max(0, room), limit)
        if (limit := self.limit.tokens) is not None:
            room = limit - taken.tokens
            if worst.tokens > room:
                return NoRoom(self.name, "tokens", worst.tokens, max(0, room), limit)
        return None

    def move(self, held: Amount, settled: Amount, estimated: Amount, unsettled: Amount) -> None:
        """Let go of what was *held* for a call, and take what became of it instead."""
        self.reserved -= held
        self.settled += settled
        self.estimated += estimated
        self.unsettled += unsettled
        over = settled - held
        self.overshoot += Amount(max(0, over.microusd), max(0, over.tokens))
