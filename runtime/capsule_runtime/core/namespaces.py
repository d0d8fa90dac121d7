"""Whether a run can have a root, a network and processes of its own here: values only."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Variant = Literal["userns", "rootns", ""]
"""Who composes the root: a user in a namespace of its own, or root itself; "" nobody."""


class Namespaces(Struct, frozen=True):
    """What was found of bubblewrap, and what it can do here."""

    variant: Variant = ""
    bwrap: str = ""
    """Its path."""
    version: str = ""
    digest: str = ""
    """The SHA-256 of its file."""
    python: str = ""
    """The interpreter that puts up the walls inside."""
    shifts_owners: bool = False
    """Whether a folder can be shown to a run as its own, and what it makes there as its owner's."""
    why: str = ""
    """Why there is no variant."""
    fix: str = ""
