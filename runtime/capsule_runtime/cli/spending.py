"""Prices for what the command shows."""

from __future__ import annotations

from capsule_runtime.core.log import Record
from capsule_runtime.core.prices import PriceTable
from capsule_runtime.settings import price_book


async def prices_for(record: Record) -> PriceTable | None:
    """Return the prices if *record* has anything to price; loading them takes a moment."""
    return await price_book().table() if record.usage.calls else None
