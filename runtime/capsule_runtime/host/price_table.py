"""Load the price table: what the `genai-prices` package ships, and the caller's own prices."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import date

import msgspec

from capsule_runtime.core.prices import DollarsPerMillion, PriceTable, Row, override


def load_price_table(on: date, overrides: Mapping[str, DollarsPerMillion]) -> PriceTable:
    """Return the prices of the day *on* (UTC), with *overrides* by model before them.

    Nothing is fetched. The first call takes a quarter of a second: make it in a worker thread.

    Raises:
        ValueError: an override holds what is no number of dollars; names the model.
    """
    from capsule_runtime.host import genai_rows  # 150 ms, and most runs have no dollar ceiling

    version = f"{genai_rows.VERSION} of {on.isoformat()}"
    if overrides:
        version = f"{version} with overrides {_digest(overrides)}"
    own = tuple(_override(model, dollars) for model, dollars in overrides.items())
    return PriceTable(version, genai_rows.providers_on(on), own)


def _digest(overrides: Mapping[str, DollarsPerMillion]) -> str:
    """Return what tells one set of overrides from another."""
    return hashlib.sha256(msgspec.json.encode(overrides, order="sorted")).hexdigest()[:12]


def _override(model: str, dollars: DollarsPerMillion) -> Row:
    try:
        return override(model, dollars)
    except ValueError as exc:
        raise ValueError(f"the price of {model!r}: {exc}") from exc
