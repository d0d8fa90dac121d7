"""Money: whole micro-dollars, never a binary fraction. What calls cost, as far as that is known."""

from __future__ import annotations

import re

from msgspec import Struct

MICRODOLLARS = 1_000_000
"""In one dollar."""
_CENT = MICRODOLLARS // 100
_DECIMALS = 6
MOST_MICRODOLLARS = 2**62
"""More than there is; what is more still counts as this, which every program can hold."""
# Bounded digits: no amount may grow past what other programs can hold.
_DECIMAL = re.compile(r"([0-9]{1,9})(?:\.([0-9]+))?")
_SHORTEST = re.compile(r"([0-9])(?:\.([0-9]+))?e-([0-9]+)")
"""How the shortest decimal of a small binary fraction is written, such as 2.5e-05."""


class Cost(Struct, frozen=True, omit_defaults=True, gc=False):
    """What calls cost, in micro-dollars: at least, and at most where a bound is known."""

    least_microusd: int = 0
    most_microusd: int | None = None

    def __add__(self, other: Cost) -> Cost:
        """Return the cost of both."""
        mine, theirs = self.most_microusd, other.most_microusd
        return Cost(
            bounded(self.least_microusd + other.least_microusd),
            None if mine is None or theirs is None else bounded(mine + theirs),
        )

    @property
    def incomplete(self) -> bool:
        """Whether a part has no price, or a price that is not exactly known."""
        return self.most_microusd != self.least_microusd

    @property
    def charged_microusd(self) -> int:
        """Return what counts against a ceiling: the most it can be, or else what is known."""
        return self.least_microusd if self.most_microusd is None else self.most_microusd


def bounded(microusd: int) -> int:
    """Return *microusd*, or the most that an amount can be."""
    return min(microusd, MOST_MICRODOLLARS)


FREE = Cost(0, 0)
UNKNOWN = Cost(0, None)


def parse_usd(value: str | int | float) -> int:
    """Return the micro-dollars of a number of dollars such as "1.50", 1.5 or 2.

    A float stands for the decimal that it is written as, not for its binary value.

    Raises:
        ValueError: *value* is no number, is negative, is too large or has more than 6 decimals.
    """
    if not re.fullmatch(r"-?[0-9]\S*", text := str(value)):
        raise ValueError(f"{value!r} is not a number of dollars; write it like 1.50")
    if text.startswith("-"):
        raise ValueError(f"{value!r} is negative; write dollars like 1.50")
    if isinstance(value, float) and (short := _SHORTEST.fullmatch(text)):
        text = f"0.{'0' * (int(short[3]) - 1)}{short[1]}{short[2] or ''}"
    if not (parts := _DECIMAL.fullmatch(text)):
        raise ValueError(f"{value!r} is not a number of dollars below 1000000000, like 1.50")
    decimals = (parts[2] or "").rstrip("0")
    if len(decimals) > _DECIMALS:
        raise ValueError(f"{value!r} has more than {_DECIMALS} decimals; write dollars like 1.50")
    return int(parts[1]) * MICRODOLLARS + int(decimals.ljust(_DECIMALS, "0"))


def show_usd(microusd: int) -> str:
    """Return *microusd* as dollars, exact: "$1.50", "$0.000412"."""
    dollars, rest = divmod(microusd, MICRODOLLARS)
    decimals = f"{rest:06}".rstrip("0").ljust(2, "0")
    return f"${dollars}.{decimals}"


def show_told(microusd: int, *, is_partial: bool) -> str:
    """Return what a harness says that it cost, as `show_cost` does; nothing is nothing here."""
    shown = show_cost(Cost(microusd, None if is_partial else microusd))
    return f"≥ {show_usd(0)}" if is_partial and not microusd else shown


def show_cost(cost: Cost | None) -> str:
    """Return *cost* for people: "$0.12"; "≥ $0.12" when incomplete; "—" when nothing is known.

    Whole cents, and less than a cent exactly: what was spent is never shown as nothing.
    """
    if cost is None or (cost.incomplete and not cost.least_microusd):
        return "—"
    least = cost.least_microusd
    if least >= _CENT:
        # What is shown as a least amount must not be rounded up.
        least = (least + (0 if cost.incomplete else _CENT // 2)) // _CENT * _CENT
    return f"≥ {show_usd(least)}" if cost.incomplete else show_usd(least)
