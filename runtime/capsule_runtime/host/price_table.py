"""Load the price table: what the `genai-prices` package ships, and the caller's own prices."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import date
from pathlib import Path

import msgspec

from capsule_runtime.core.prices import DollarsPerMillion, PriceTable, Provider, Row, override
from capsule_runtime.host.price_cache import keep_prices, read_prices


def load_price_table(
    on: date, overrides: Mapping[str, DollarsPerMillion], cache: Path | None = None
) -> PriceTable:
    """Return the prices of the day *on* (UTC), with *overrides* by model before them.

    Nothing is fetched. Without a *cache* that holds them already it takes a quarter of a second:
    make the call in a worker thread.

    Raises:
        ValueError: an override holds what is no number of dollars; names the model.
    """
    from importlib.metadata import version as version_of  # 8 ms; only where prices are wanted

    own = override_rows(overrides)
    version = f"genai-prices {version_of('genai-prices')} of {on.isoformat()}"
    providers = read_prices(cache, version) if cache else None
    if providers is None:
        providers = _shipped(on)
        if cache:
            keep_prices(cache, version, providers)
    if overrides:
        version = f"{version} with overrides {_digest(overrides)}"
    return PriceTable(version, providers, own)


def override_rows(overrides: Mapping[str, DollarsPerMillion]) -> tuple[Row, ...]:
    """Return the caller's own prices as rows of a table.

    Raises:
        ValueError: one holds what is no number of dollars; names the model.
    """
    return tuple(_override(model, dollars) for model, dollars in overrides.items())


def _shipped(on: date) -> tuple[Provider, ...]:
    from capsule_runtime.host import genai_rows  # 150 ms, and most runs have no dollar ceiling

    return genai_rows.providers_on(on)


def _digest(overrides: Mapping[str, DollarsPerMillion]) -> str:
    """Return what tells one set of overrides from another."""
    return hashlib.sha256(msgspec.json.encode(overrides, order="sorted")).hexdigest()[:12]


def _override(model: str, dollars: DollarsPerMillion) -> Row:
    try:
        return override(model, dollars)
    except ValueError as exc:
        raise ValueError(f"the price of {model!r}: {exc}") from exc
