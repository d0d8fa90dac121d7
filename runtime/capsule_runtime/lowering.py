"""What a caller wants to be lower than its capsule has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from capsule_runtime.errors import UsageError
from capsule_runtime.manifest import MEMORY_BYTES_AT_LEAST, PROCESSES_AT_LEAST

if TYPE_CHECKING:
    from capsule_runtime.request import RunRequest


def lowered(limits: dict[str, float], request: RunRequest) -> dict[str, float]:
    """Return *limits*, or what *request* wants to be lower.

    Raises:
        UsageError: E-USE-051, no harness could start with so little.
    """
    wishes = {
        "wall_seconds": (request.wall_seconds, 0),
        "memory_bytes": (request.memory_bytes, MEMORY_BYTES_AT_LEAST),
        "processes": (request.processes, PROCESSES_AT_LEAST),
    }
    for name, (wish, least) in wishes.items():
        if wish is not None and wish < least:
            raise UsageError(
                "E-USE-051", f"{name} is {wish:g}, and must be at least {least}", "Ask for more."
            )
    wished = {name: wish for name, (wish, _) in wishes.items() if wish is not None}
    return {name: min(limit, wished.get(name, limit)) for name, limit in limits.items()}
