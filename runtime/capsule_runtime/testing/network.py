"""A network for tests: names lead where a test says, and addresses to servers of the test itself."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Collection, Mapping, Sequence

import anyio
import anyio.lowlevel


class FakeNetwork:
    """A network of a few names and servers; give it to what serves the doors of a run.

    *names* have addresses, which may be any. *servers* says on which port of this machine's loopback
    the server for an address and port listens; nobody else answers. What was asked of it is kept.
    """

    def __init__(
        self,
        names: Mapping[str, Sequence[str]],
        servers: Mapping[tuple[str, int], int] | None = None,
        *,
        own: Collection[str] = (),
    ) -> None:
        self._names = names
        self._servers = servers or {}
        self._own = own
        self.looked_up: list[str] = []
        self.dialled: list[tuple[str, int]] = []

    async def resolve(self, name: str) -> Sequence[str]:
        """Return the addresses of *name*.

        Raises:
            OSError: it has none.
        """
        self.looked_up.append(name)
        await anyio.lowlevel.checkpoint()
        if name not in self._names:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return self._names[name]

    async def dial(self, address: str, port: int) -> socket.socket:
        """Return a connection to the server of *address* and *port*.

        Raises:
            OSError: there is none.
        """
        self.dialled.append((address, port))
        local = self._servers.get((address, port))
        if local is None:
            raise OSError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        peer = socket.socket()
        try:
            peer.setblocking(False)
            peer.connect_ex(("127.0.0.1", local))
            await anyio.wait_writable(peer)
            if error := peer.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                raise OSError(error, os.strerror(error))
        except BaseException:
            peer.close()
            raise
        return peer

    def is_own(self, address: str) -> bool:
        """Tell whether *address* was said to be this machine's own."""
        return address in self._own
