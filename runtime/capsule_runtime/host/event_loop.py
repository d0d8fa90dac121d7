"""Reach the event loop from a thread, the same way on asyncio and trio."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress

Post = Callable[[Callable[[], object]], object]
"""Have the loop call something soon. May be used in any thread."""


def loop_post() -> Post:
    """Return the `Post` of the event loop that runs in this thread."""
    # A program that never imported trio cannot be running on it.
    if "trio" in sys.modules:
        import trio

        with suppress(RuntimeError):
            return trio.lowlevel.current_trio_token().run_sync_soon
    import asyncio

    return asyncio.get_running_loop().call_soon_threadsafe
