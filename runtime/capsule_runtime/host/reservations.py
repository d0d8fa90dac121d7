"""The ceilings of a UTC day, shared by all processes of one state directory.

    a run starts        reserve a slice, in the transaction that creates the run, or create nothing
    it needs more       reserve another slice, if there is one; what it used beyond its own counts
    it ends             its row becomes what it used, in the transaction that ends its log

Every step is one transaction under the commit lock, so all see the same sums. Promised: the slices
that are held never add up to more than the ceiling, and a run is stopped while its slice still
covers the call that may be under way. Not promised: that no call is larger than those before it, or
that a harness stops when it is told to. What a run uses beyond its slice passes the ceiling by
that much; it counts, and no run starts before the next day. Only what ran under a day's ceiling counts.
What a run uses counts for the day for which it was reserved.
"""

from __future__ import annotations

import sqlite3

from msgspec import Struct

from capsule_runtime.core.ceilings import Ceiling, DayCeilings, DayReached
from capsule_runtime.core.day_share import CALLS_WANTED, Needs, Share, slice_of
from capsule_runtime.core.money import bounded
from capsule_runtime.host.statements import QUERIES

_NOTHING_USED = Needs()


class Claim(Struct, frozen=True):
    """What *run* of *owner* asks of *day* (such as 2026-01-31)."""

    run: str
    owner: str
    day: str
    ceilings: DayCeilings
    needs: Needs = _NOTHING_USED


class Settlement(Struct, frozen=True):
    """What *run* used in all."""

    run: str
    microusd: int
    tokens: int


class _Amounts(Struct, frozen=True):
    microusd: int = 0
    tokens: int = 0


def reserve(database: sqlite3.Connection, claim: Claim) -> Share:
    """Reserve a slice for *claim*, as far as there is one, within the caller's transaction."""
    used, before, held = _history(database, claim)
    # What was used beyond the slice is taken, too.
    on_day = _Amounts(
        max(held.microusd, used.microusd - before.microusd),
        max(held.tokens, used.tokens - before.tokens),
    )
    taken = _taken(database, claim.day, held, on_day)
    wanted = _Amounts(
        used.microusd
        + max(1, CALLS_WANTED * claim.needs.call_microusd)
        - before.microusd
        - on_day.microusd,
        used.tokens
        + max(1, CALLS_WANTED * claim.needs.call_tokens)
        - before.tokens
        - on_day.tokens,
    )
    limits = claim.ceilings
    more = _Amounts(
        _slice(limits.microusd, taken.microusd, wanted.microusd),
        _slice(limits.tokens, taken.tokens, wanted.tokens),
    )
    now = _Amounts(on_day.microusd + more.microusd, on_day.tokens + more.tokens)
    row = {"day": claim.day, "run": claim.run, "owner": claim.owner}
    values = {"microusd": bounded(now.microusd), "tokens": bounded(now.tokens)}
    database.execute(QUERIES["reserve"], row | values)
    return Share(
        claim.day,
        limits,
        None if limits.microusd is None else before.microusd + now.microusd,
        None if limits.tokens is None else before.tokens + now.tokens,
        taken.microusd + more.microusd,
        taken.tokens + more.tokens,
    )


def exhausted(database: sqlite3.Connection, claim: Claim) -> DayReached | None:
    """Return the ceiling of the day that has nothing left, before anything is reserved."""
    taken = _taken(database, claim.day, _Amounts(), _Amounts())
    for ceiling, limit, used in (
        (Ceiling.USD, claim.ceilings.microusd, taken.microusd),
        (Ceiling.TOKENS, claim.ceilings.tokens, taken.tokens),
    ):
        if limit is not None and used >= limit:
            return DayReached(ceiling, claim.day, limit, used)
    return None


def settle(database: sqlite3.Connection, settlement: Settlement) -> None:
    """Turn what the run holds into what it used, within the caller's transaction."""
    values = {"run": settlement.run, "microusd": settlement.microusd, "tokens": settlement.tokens}
    database.execute(QUERIES["settle"], values)


def _history(database: sqlite3.Connection, claim: Claim) -> tuple[_Amounts, _Amounts, _Amounts]:
    """Return what the run used in all, what of it other days have had, and what it holds today.

    What it still held of an earlier day is settled: from now on it spends from this one.
    """
    used = _Amounts(bounded(claim.needs.microusd), bounded(claim.needs.tokens))
    rows = database.execute(QUERIES["reservations_of_run"], {"run": claim.run}).fetchall()
    if any(day != claim.day and state == "held" for day, _, _, state in rows):
        settle(database, Settlement(claim.run, used.microusd, used.tokens))
        rows = database.execute(QUERIES["reservations_of_run"], {"run": claim.run}).fetchall()
    before, held = _Amounts(), _Amounts()
    for day, microusd, tokens, _ in rows:
        if day == claim.day:
            held = _Amounts(microusd, tokens)
        else:
            before = _Amounts(before.microusd + microusd, before.tokens + tokens)
    return used, before, held


def _taken(database: sqlite3.Connection, day: str, held: _Amounts, on_day: _Amounts) -> _Amounts:
    """Return what all runs took of *day*, with *on_day* in the place of what this one *held*."""
    ((microusd, tokens),) = database.execute(QUERIES["day_taken"], {"day": day}).fetchall()
    return _Amounts(
        microusd - held.microusd + on_day.microusd, tokens - held.tokens + on_day.tokens
    )


def _slice(limit: int | None, taken: int, wanted: int) -> int:
    return 0 if limit is None else slice_of(limit, taken, wanted)
