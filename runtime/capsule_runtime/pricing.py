"""The prices of today, for whoever asks: loaded once, and only if somebody does."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from pathlib import Path

import anyio.to_thread

from capsule_runtime.core.prices import DollarsPerMillion, PriceTable
from capsule_runtime.errors import UsageError
from capsule_runtime.host.clock import SystemClock
from capsule_runtime.host.price_table import load_price_table, override_rows
from capsule_runtime.host.state import default_state

NO_OVERRIDES: Mapping[str, DollarsPerMillion] = {}


class PriceBook:
    """The price table of the current UTC day, with the caller's *overrides* by `provider:id`."""

    def __init__(
        self,
        state: Path | None = None,
        overrides: Mapping[str, DollarsPerMillion] = NO_OVERRIDES,
    ) -> None:
        """*overrides* go before all other prices.

        Raises:
            UsageError: E-USE-042, an override is no price.
        """
        self._cache = (state or default_state()) / "cache" / "prices.msgpack"
        self._overrides = overrides
        try:
            override_rows(overrides)
        except ValueError as exc:
            raise UsageError(
                "E-USE-042", str(exc), "Dollars per million tokens are written like 1.50."
            ) from exc
        self._loaded: tuple[date, PriceTable] | None = None

    async def table(self) -> PriceTable:
        """Return the table; the first time, from a worker thread."""
        if (table := self._known()) is not None:
            return table
        return await anyio.to_thread.run_sync(self.load)

    def load(self) -> PriceTable:
        """Return the table. Blocks, the first time for a quarter of a second at worst."""
        if (table := self._known()) is not None:
            return table
        today = _today()
        table = load_price_table(today, self._overrides, self._cache)
        self._loaded = today, table
        return table

    def _known(self) -> PriceTable | None:
        if self._loaded is None or self._loaded[0] != _today():
            return None
        return self._loaded[1]


def _today() -> date:
    """Return the day that it is in UTC."""
    return date.fromisoformat(SystemClock().moment().at[: len("2026-01-31")])
