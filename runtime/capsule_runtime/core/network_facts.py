"""What the log knows of what a run reached in the network, or tried to."""

from __future__ import annotations

from msgspec import Struct

from capsule_runtime.core.verdicts import Door, Ending, Why


class Egress(Struct, frozen=True, tag_field="fact", tag="egress", omit_defaults=True):
    """The run tried to reach something: it was *refused*, or let through, and then it *ended* so.

    *sent* and *received* are bytes, *ms* how long it took in all.
    """

    seq: int
    at: str
    run: str
    door: Door
    refused: Why | None = None
    ended: Ending | None = None
    place: str = ""
    """As a grant writes it; empty where the request named none."""
    address: str | None = None
    """The one that was dialled."""
    message: str = ""
    sent: int = 0
    received: int = 0
    ms: int = 0


class EgressMore(Struct, frozen=True, tag_field="fact", tag="egress-more"):
    """So many more attempts there were, and so many bytes, than have a fact of their own."""

    seq: int
    at: str
    run: str
    allowed: int
    refused: int
    sent: int
    received: int
