"""What a run may spend, alone and beside others of its day, and the words of a refusal."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Literal

from msgspec import Struct

from capsule_runtime.core.money import show_usd
from capsule_runtime.errors import UsageError


class Ceiling(StrEnum):
    """What can be bounded, in the order in which it is looked at."""

    USD = "usd"
    TOKENS = "tokens"
    TURNS = "turns"
    TOOL_CALLS = "tool_calls"


class Ceilings(Struct, frozen=True, omit_defaults=True):
    """What a run may spend. None is no ceiling.

    *on_unmetered* says what becomes of a ceiling on usd or tokens that nobody can hold.
    """

    microusd: int | None = None
    tokens: int | None = None
    turns: int | None = None
    tool_calls: int | None = None
    on_unmetered: Literal["refuse", "allow"] = "refuse"

    def __post_init__(self) -> None:
        _check(self.limits())

    def lowered_by(self, other: Ceilings) -> Ceilings:
        """Return the lower of each ceiling. Only whoever set one on usd or tokens may let it go.

        So one of the two that says "refuse" and has such a ceiling is heeded.
        """
        strict = any(one.on_unmetered == "refuse" and one.is_metered for one in (self, other))
        allow = "allow" in (self.on_unmetered, other.on_unmetered)
        return Ceilings(
            _lower(self.microusd, other.microusd),
            _lower(self.tokens, other.tokens),
            _lower(self.turns, other.turns),
            _lower(self.tool_calls, other.tool_calls),
            "allow" if allow and not strict else "refuse",
        )

    @property
    def shown(self) -> str:
        """Return the ceilings for people: "$1.50, 20000 tokens, 10 turns"; "" if there are none."""
        return ", ".join(_counted(ceiling, limit) for ceiling, limit in self.limits())

    @property
    def is_metered(self) -> bool:
        """Whether something is bounded that only reports of usage can tell."""
        return self.microusd is not None or self.tokens is not None

    def limits(self) -> tuple[tuple[Ceiling, int], ...]:
        """Return the limits that are set, in the order of `Ceiling`: micro-dollars for usd."""
        every = (
            (Ceiling.USD, self.microusd),
            (Ceiling.TOKENS, self.tokens),
            (Ceiling.TURNS, self.turns),
            (Ceiling.TOOL_CALLS, self.tool_calls),
        )
        return tuple((ceiling, limit) for ceiling, limit in every if limit is not None)


class DayCeilings(Struct, frozen=True, omit_defaults=True):
    """What all runs of one state directory may spend on one UTC day. None is no ceiling."""

    microusd: int | None = None
    tokens: int | None = None

    def __post_init__(self) -> None:
        _check(Ceilings(self.microusd, self.tokens).limits())

    @property
    def shown(self) -> str:
        """Return the ceilings for people; "" if there are none."""
        return Ceilings(self.microusd, self.tokens).shown

    def lowered_by(self, other: DayCeilings) -> DayCeilings:
        """Return the lower of both, one by one."""
        return DayCeilings(_lower(self.microusd, other.microusd), _lower(self.tokens, other.tokens))

    def __bool__(self) -> bool:
        return self.microusd is not None or self.tokens is not None


class Reached(Struct, frozen=True, omit_defaults=True, tag_field="refused", tag="reached"):
    """A ceiling was reached. *limit* and *observed* are micro-dollars for usd.

    *call* is the number, from 1, of the model call that did it. *estimated*: the sum is not exactly
    known.
    """

    ceiling: Ceiling
    limit: int
    observed: int
    call: int | None = None
    estimated: bool = False

    @property
    def refusal(self) -> str:
        """Return the refusal for people."""
        limit, observed = _shown(self.ceiling, self.limit), _shown(self.ceiling, self.observed)
        about = "about " if self.estimated else ""
        by = f", with model call {self.call}" if self.call else ""
        return f"the {self.ceiling} ceiling of {limit} is reached: {about}{observed} observed{by}"


class Unheld(Struct, frozen=True, omit_defaults=True, tag_field="refused", tag="unheld"):
    """A ceiling that nobody can hold, and *why*."""

    ceiling: Ceiling
    limit: int
    why: str
    is_of_day: bool = False

    @property
    def refusal(self) -> str:
        """Return the refusal for people."""
        limit, day = _shown(self.ceiling, self.limit), " for the day" if self.is_of_day else ""
        return f"the {self.ceiling} ceiling of {limit}{day} cannot be held: {self.why}"


class DayReached(Struct, frozen=True, omit_defaults=True, tag_field="refused", tag="day-reached"):
    """The ceiling of a day has no room for another call. Micro-dollars for usd.

    *taken* is what all runs of the day used or hold in reserve; *left* is what this run still holds
    of it, and *call* what a call of it took at most so far.
    """

    ceiling: Ceiling
    day: str
    limit: int
    taken: int
    left: int = 0
    call: int = 0

    @property
    def refusal(self) -> str:
        """Return the refusal for people."""
        limit, taken = _shown(self.ceiling, self.limit), _shown(self.ceiling, self.taken)
        of_day = f"the {self.ceiling} ceiling of {limit} for the day {self.day} (UTC)"
        if self.left <= 0:
            return f"{of_day} is reached: {taken} used or reserved by all runs"
        left, call = _shown(self.ceiling, self.left), _shown(self.ceiling, self.call)
        return (
            f"{of_day} has no room for a call beside the one that may be under way: {taken} used or"
            f" reserved by all runs, {left} of it left to this run, and a call of it took {call}"
        )


Refusal = Reached | Unheld | DayReached
"""Why a run may not spend more."""


def _lower(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else min(one, other)


def _counted(ceiling: Ceiling, limit: int) -> str:
    if ceiling is Ceiling.USD:
        return show_usd(limit)
    things = ceiling.value.replace("_", " ")
    return f"{limit} {things.removesuffix('s') if limit == 1 else things}"


def _shown(ceiling: Ceiling, amount: int) -> str:
    return show_usd(amount) if ceiling is Ceiling.USD else str(amount)


def _check(limits: Iterable[tuple[Ceiling, int]]) -> None:
    """Refuse a ceiling that is no count.

    Raises:
        UsageError: E-USE-044.
    """
    for ceiling, limit in limits:
        if type(limit) is not int or limit < 0:
            what = "micro-dollars" if ceiling is Ceiling.USD else "of them"
            raise UsageError(
                "E-USE-044",
                f"the {ceiling} ceiling is {limit!r}, and must be a whole number {what}, 0 or more",
            )


NO_DAY = DayCeilings()
