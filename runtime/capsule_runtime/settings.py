"""What the caller set for all runs: the ceilings of the day, and prices of their own."""

from __future__ import annotations

import os
from pathlib import Path

from capsule_runtime.core.ceilings import DayCeilings
from capsule_runtime.core.money import parse_usd
from capsule_runtime.errors import UsageError
from capsule_runtime.host.config_file import load_config
from capsule_runtime.pricing import PriceBook

DAY_USD, DAY_TOKENS = "CAPSULE_DAY_USD", "CAPSULE_DAY_TOKENS"
_MOST_DIGITS = len(str(2**53))


def day_ceilings() -> DayCeilings:
    """Return what all runs of a UTC day may spend: the lower of the environment and config.toml.

    Raises:
        UsageError: E-USE-043, the environment names no such amount; config.toml is wrong.
    """
    config = load_config()
    given = _from_environment()
    return given.lowered_by(config.day) if config else given


def price_book(state: Path | None = None) -> PriceBook:
    """Return the prices that hold for this caller: those of config.toml before all others.

    Raises:
        UsageError: config.toml is wrong.
    """
    config = load_config()
    return PriceBook(state, config.prices) if config else PriceBook(state)


def _from_environment() -> DayCeilings:
    usd, tokens = os.environ.get(DAY_USD), os.environ.get(DAY_TOKENS)
    try:
        return DayCeilings(parse_usd(usd) if usd else None, _count(tokens) if tokens else None)
    except ValueError as exc:
        raise UsageError(
            "E-USE-043",
            f"the ceilings of the day cannot be read: {exc}",
            f'Write {DAY_USD}="20.00" and {DAY_TOKENS}="5000000", or unset them.',
        ) from exc


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS):
        raise ValueError(f"{text!r} is not a number of tokens")
    return int(text)
