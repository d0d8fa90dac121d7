"""A server's socket that is on loopback, where every user of the machine could knock, and yet lets in
only those who were brought by whoever holds it.
"""

from __future__ import annotations

import errno
import os
import socket

_WAITING_AT_MOST = 1024
_LOOPBACK = "127.0.0.1"


class OwnListener(socket.socket):
    """A listener that does not block; its callers are the sockets that `dial` returned.

    They are real sockets of TCP, as a program expects them, and no port of it is worth knowing: the
    one who holds it decides who is connected to it.
    """

    def __init__(self) -> None:
        """Listen.

        Raises:
            OSError: the system refuses.
        """
        super().__init__(socket.AF_INET, socket.SOCK_STREAM)
        self._brought: set[tuple[str, int]] = set()
        try:
            self.bind((_LOOPBACK, 0))
            self.listen(_WAITING_AT_MOST)
        except OSError:
            self.close()
            raise
        self.setblocking(False)

    def dial(self) -> socket.socket:
        """Return a new caller, connected, that does not block.

        Raises:
            OSError: too many wait to be let in.
        """
        caller = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            caller.bind((_LOOPBACK, 0))
            caller.connect_ex(self.getsockname())
            # On loopback it is done at once; whom the system leaves outside stays there, since
            # somebody else could come from where it was.
            caller.getpeername()
        except OSError as exc:
            caller.close()
            raise OSError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED)) from exc
        self._brought.add(caller.getsockname())
        return caller

    def accept(self) -> tuple[socket.socket, tuple[str, int]]:
        """Return the next one who was brought; strangers are turned away.

        Raises:
            BlockingIOError: nobody waits.
        """
        while True:
            try:
                visitor, address = super().accept()
            except ConnectionAbortedError:
                # Someone left who was to come in. Nobody knows who, so nobody may come in his place.
                self._brought.clear()
                continue
            if address in self._brought:
                self._brought.discard(address)
                return visitor, address
            visitor.close()
