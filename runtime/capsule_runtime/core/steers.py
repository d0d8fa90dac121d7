"""Words for a harness that works, as the log tells of them."""

from __future__ import annotations

from msgspec import Struct


class Steer(Struct):
    """Words that somebody had for the working harness, and what became of them."""

    id: str
    at: str
    text: str
    refused: str | None = None
    """Why it was not given them."""
    taken_at: str | None = None
    """When it said that it has them; None as long as it has not."""
