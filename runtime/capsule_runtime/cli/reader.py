"""Know that the reader of a pipe has left before anything is written to it."""

from __future__ import annotations

import os
import select
import stat

import anyio


async def reader_gone(fd: int) -> None:
    """Wait until nobody can read any more what *fd* leads to: for ever unless it is a pipe."""
    mode = os.fstat(fd).st_mode
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        await anyio.sleep_forever()
    with select.epoll() as poller:
        # Asked for nothing, it still tells of errors and hang-ups. It can be waited for itself.
        poller.register(fd, 0)
        await anyio.wait_readable(poller.fileno())
