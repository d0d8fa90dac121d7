"""Whoever is at the other end of a connection: when a request begins, its head, and when it leaves."""

from __future__ import annotations

from socket import MSG_PEEK, socket

import anyio

from capsule_runtime.core.http_head import end_of_head
from capsule_runtime.core.relaying import Fault
from capsule_runtime.host.gateway.bounds import Bounds
from capsule_runtime.host.sockets import receive

_EMPTY_LINE = (b"", b"\r", b"\r\n")
"""RFC 9112, 2.2: one may stand before a request."""


class Unheard(Exception):
    """Raised where a request is not understood, or bigger or slower than it may be."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault


class Gone(Exception):
    """Raised where the client has left, or does not take what it asked for."""


class Room:
    """What the bodies of all requests under way in one run may hold together."""

    def __init__(self, most: int) -> None:
        self._left = most

    def take(self, size: int) -> bool:
        """Take *size* bytes, unless there are too few; tell whether they were taken."""
        if size > self._left:
            return False
        self._left -= size
        return True

    def give_back(self, size: int) -> None:
        """Give back what was taken."""
        self._left += size


class Client:
    """Whoever is at the other end, and what it said that belongs to no request yet."""

    def __init__(self, peer: socket, bounds: Bounds) -> None:
        self.peer = peer
        self.bounds = bounds
        self.said = b""

    async def begins(self) -> bool:
        """Wait for the first byte of a request; tell whether one came."""
        while self.said in _EMPTY_LINE:
            if not (data := await self._heard()):
                return False
            self.said += data
        self.said = self.said.removeprefix(b"\r\n")
        return True

    async def head(self) -> bytes:
        """Return the head of the request that has begun.

        Raises:
            Unheard: it is too long, or does not come in time.
            Gone: the client left within it.
        """
        with anyio.move_on_after(self.bounds.head_seconds):
            while (end := end_of_head(self.said)) < 0 and len(self.said) <= self.bounds.head_bytes:
                if not (data := await self._heard()):
                    raise Gone
                self.said += data
            if end < 0 or end > self.bounds.head_bytes:
                most = self.bounds.head_bytes
                raise Unheard(Fault(431, "head", f"the head has more than {most} bytes"))
            raw, self.said = self.said[:end], self.said[end:]
            return raw
        raise Unheard(Fault(408, "slow-head", "the head of the request took too long"))

    async def has_left(self) -> None:
        """Return when the client has left, or says something already for its next request.

        One that says that it will say no more is taken for gone: clients of HTTP do not.
        """
        if self.said:
            await anyio.sleep_forever()
        await anyio.wait_readable(self.peer)
        try:
            left = not self.peer.recv(1, MSG_PEEK)
        except BlockingIOError:
            left = False
        except OSError:
            left = True
        if not left:
            await anyio.sleep_forever()

    async def _heard(self) -> bytes:
        try:
            return await receive(self.peer, self.bounds.head_bytes)
        except OSError:
            return b""
