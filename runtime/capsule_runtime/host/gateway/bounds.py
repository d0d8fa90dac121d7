"""How much a run may ask of its gateway, and how long each part of a call may take."""

from __future__ import annotations

from msgspec import Struct


class Bounds(Struct, frozen=True):
    """What bounds one run's gateway."""

    connections: int = 512
    """So many are served at once; others wait before the door."""
    head_bytes: int = 16 * 1024
    headers: int = 100
    body_bytes: int = 32 * 1024 * 1024
    """The largest body of a request."""
    bodies_bytes: int = 256 * 1024 * 1024
    """What the bodies of all requests under way may hold together."""
    chunks: int = 4096
    """So many chunks a body may have, and one more for each 64 bytes."""

    idle_seconds: float = 75
    """Between two requests of a connection."""
    head_seconds: float = 10
    body_seconds: float = 60
    client_seconds: float = 300
    """Until the client takes the next piece of its answer; up to half a second more is given."""
    first_byte_seconds: float = 900
    """From a call's admission to the head of its answer, dialling and sending included."""
    silent_seconds: float = 300
    """Between two pieces of an answer; up to half a second more is given."""
    total_seconds: float = 3600
    """From a call's admission to the end of its answer."""
    end_seconds: float = 10
    """For what a meter does at the end of a call, and for closing its connection."""
