"""Ask a provider's own counter how long a request is: once, briefly, and without it all goes on."""

from __future__ import annotations

import anyio
from msgspec.structs import replace

from capsule_runtime.core.gateway.counting import count_in
from capsule_runtime.core.relaying import Forward, RequestHead
from capsule_runtime.host.gateway.upstreams import Unserved, Upstreams

PATIENCE_SECONDS = 10.0
_MOST_BYTES = 64 * 1024
_OK = 200


async def count_at(upstreams: Upstreams, forward: Forward, head: RequestHead) -> int | None:
    """Return what the counter at *forward* says, for who asked with *head*; None if it says nothing."""
    with anyio.move_on_after(PATIENCE_SECONDS):
        try:
            async with upstreams.asked(forward, replace(head, method="POST")) as reply:
                said = b""
                async for piece in reply.pieces:
                    said += piece
                    if len(said) > _MOST_BYTES:
                        return None
                return count_in(said) if reply.status == _OK else None
        except Unserved:
            return None  # The call itself will tell what is wrong there.
    return None
