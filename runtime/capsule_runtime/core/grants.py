"""What a capsule may touch beyond its own directory and the work directory."""

from __future__ import annotations

from msgspec import Struct


class Grants(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Paths, hosts and names, as a manifest asks for them or a caller grants them."""

    read: tuple[str, ...] = ()
    """Absolute paths that may be read and executed."""
    write: tuple[str, ...] = ()
    """Absolute paths that may be read and written."""
    hosts: tuple[str, ...] = ()
    """Network destinations: `host`, `host:port` or `*.host`."""
    env: tuple[str, ...] = ()
    """Names of variables taken over from the caller's environment."""
    secrets: tuple[str, ...] = ()
    """Names of variables whose values are secrets: by definition inside, and listed."""
