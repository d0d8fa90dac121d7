"""What this machine can do about system calls: as it was tried, with the reason where it cannot."""

from __future__ import annotations

from msgspec import Struct


class Filtering(Struct, frozen=True):
    """Each is "" where it works, or why it does not."""

    filters: str
    """A filter that refuses: without it there is neither a sealed nor a scoped run."""
    notices: str
    """A filter that tells somebody else of a call."""
    mediation: str
    """All that the broker does for a harness: it reads its memory, gives it a socket, and reaches
    files beneath a folder. Without it the network of a scoped run is blocked."""
    stays_readable: bool = False
    """Whether a harness could hide from a broker of ours, and so must be kept from it."""
