"""What a context was made with, as its harness sees it: a session is found again only there."""

from __future__ import annotations

from typing import Literal, NamedTuple

from msgspec import Struct

TierClass = Literal["sealed", "unsealed"]
"""Whether a harness sees a root of its own, or this machine's paths."""


class Setting(Struct, frozen=True, omit_defaults=True):
    """Where the runs of a context take place. What is None was not written down."""

    tier: TierClass | None = None
    home: str | None = None
    workdir: str | None = None
    """In a copy that lies elsewhere each time, the folder that it is a copy of."""


class Difference(NamedTuple):
    """The first field in which a run is not what its context is."""

    field: str
    has: str
    would: str


def difference(context: Setting, run: Setting) -> Difference | None:
    """Return in what *run* differs from its *context*; what is not known differs from nothing."""
    for field in ("tier", "workdir", "home"):
        has, would = getattr(context, field), getattr(run, field)
        if None not in (has, would) and has != would:
            return Difference(field, has, would)
    return None
