"""What a run may spend, and the words in which it is refused more."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from msgspec import Struct

from capsule_runtime.core.money import show_usd


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

    def limits(self) -> tuple[tuple[Ceiling, int], ...]:
        """Return the limits that are set, in the order of `Ceiling`: micro-dollars for usd."""
        every = (
            (Ceiling.USD, self.microusd),
            (Ceiling.TOKENS, self.tokens),
            (Ceiling.TURNS, self.turns),
            (Ceiling.TOOL_CALLS, self.tool_calls),
        )
        return tuple((ceiling, limit) for ceiling, limit in every if limit is not None)


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


class Unheld(Struct, frozen=True, tag_field="refused", tag="unheld"):
    """A ceiling that nobody can hold, and *why*."""

    ceiling: Ceiling
    limit: int
    why: str

    @property
    def refusal(self) -> str:
        """Return the refusal for people."""
        limit = _shown(self.ceiling, self.limit)
        return f"the {self.ceiling} ceiling of {limit} cannot be held: {self.why}"


Refusal = Reached | Unheld
"""Why a run may not spend more."""


def _shown(ceiling: Ceiling, amount: int) -> str:
    return show_usd(amount) if ceiling is Ceiling.USD else str(amount)
