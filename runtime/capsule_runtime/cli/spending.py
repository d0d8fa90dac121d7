"""What the caller set for all runs: the ceilings of the day, and prices of their own."""

from __future__ import annotations

import os
from collections.abc import Mapping

from capsule_runtime.cli.options import MOST
from capsule_runtime.core.ceilings import DayCeilings
from capsule_runtime.core.log import Record
from capsule_runtime.core.money import parse_usd
from capsule_runtime.core.prices import PriceTable
from capsule_runtime.errors import UsageError
from capsule_runtime.pricing import PriceBook

DAY_USD, DAY_TOKENS = "CAPSULE_DAY_USD", "CAPSULE_DAY_TOKENS"


def day_ceilings(environment: Mapping[str, str] = os.environ) -> DayCeilings:
    """Return what all runs of a UTC day may spend.

    Raises:
        UsageError: E-USE-043, what is set is no such amount.
    """
    usd, tokens = environment.get(DAY_USD), environment.get(DAY_TOKENS)
    try:
        return DayCeilings(parse_usd(usd) if usd else None, _count(tokens) if tokens else None)
    except ValueError as exc:
        raise UsageError(
            "E-USE-043",
            f"the ceilings of the day cannot be read: {exc}",
            f'Write {DAY_USD}="20.00" and {DAY_TOKENS}="5000000", or unset them.',
        ) from exc


def price_book() -> PriceBook:
    """Return the prices that hold for this caller."""
    return PriceBook()


async def prices_for(record: Record) -> PriceTable | None:
    """Return the prices if *record* has anything to price; loading them takes a moment."""
    return await price_book().table() if record.usage.calls else None


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= len(str(MOST))):
        raise ValueError(f"{text!r} is not a number of tokens")
    return int(text)
