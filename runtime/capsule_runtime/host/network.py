"""The network as a supervisor sees it: where names lead, what answers, which addresses are its own."""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Protocol

import anyio
import anyio.to_thread

from capsule_runtime.host.sockets import connect

_AT_ONCE = 16
LOOKUPS_AT_MOST = 64
"""Threads that look something up, those included that nobody waits for any more."""


class Network(Protocol):
    """What a door of a run needs of the network. Tests bring one of their own."""

    async def resolve(self, name: str) -> Sequence[str]:
        """Return the addresses of *name*, the best first.

        Raises:
            OSError: it has none, or nobody knows.
        """
        ...

    async def dial(self, address: str, port: int) -> socket.socket:
        """Return a connection to *address*; it never blocks, and is the caller's to close.

        Raises:
            OSError: nobody answers there.
        """
        ...

    def is_own(self, address: str) -> bool:
        """Tell whether *address* leads to this machine, or to more than one.

        Raises:
            OSError: that cannot be told.
        """
        ...


class SystemNetwork:
    """The network of this machine, for all runs of one supervisor.

    What looks names up is the machine's resolver, which blocks: in threads, of which there are few,
    whatever runs ask for and however long the resolver takes.
    """

    def __init__(self, look_up: Callable[[str], Sequence[str]] | None = None) -> None:
        """*look_up* blocks until it has the addresses of a name; the machine's own way if None."""
        self._find = look_up or addresses_of_name
        self._turns = anyio.Semaphore(_AT_ONCE)
        self._threads = anyio.CapacityLimiter(LOOKUPS_AT_MOST)
        self._lock = Lock()
        """Held to change `_looking`, which threads do that nobody waits for any more."""
        self._looking = 0

    async def resolve(self, name: str) -> Sequence[str]:
        async with self._turns:
            if self._looking >= LOOKUPS_AT_MOST:
                raise OSError(errno.EAGAIN, "the resolver of this machine does not answer")
            # The thread goes on when nobody waits: it cannot be ended.
            return await anyio.to_thread.run_sync(
                self._look_up, name, abandon_on_cancel=True, limiter=self._threads
            )

    async def dial(self, address: str, port: int) -> socket.socket:
        return await connect(address, port)

    def is_own(self, address: str) -> bool:
        return leads_here(address)

    def _look_up(self, name: str) -> Sequence[str]:
        self._count(1)
        try:
            return self._find(name)
        finally:
            self._count(-1)

    def _count(self, change: int) -> None:
        with self._lock:
            self._looking += change


def addresses_of_name(name: str) -> Sequence[str]:
    """Return the addresses of *name*, as this machine's resolver orders them; blocks.

    Raises:
        OSError: it has none, or nobody knows.
    """
    # As bytes: a text would be taken through rules for names that it does not need.
    found = socket.getaddrinfo(name.encode("ascii"), None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(place[0]) for *_, place in found))


_REQUEST = struct.Struct("=IHHIIBBBBBBBBIHH")
"""The head of a message of rtnetlink, the question for a route, and the head of its one attribute."""
_ANSWER = struct.Struct("=IHHIIBBBBBBBB")
_ERROR = struct.Struct("=IHHIIi")
_NLMSG_ERROR = 2
_RTM_GETROUTE = 26
_NLM_F_REQUEST = 1
_RTA_DST = 1
_RTN_UNICAST = 1
_NO_WAY = {
    errno.ENETUNREACH,
    errno.EHOSTUNREACH,
    errno.EACCES,
    errno.EINVAL,
    errno.EOPNOTSUPP,
    errno.EAFNOSUPPORT,
}
"""What the kernel says of an address that it would not let anybody dial either."""


def leads_here(address: str) -> bool:
    """Tell whether the kernel keeps what is sent to *address*, or sends it to more than one.

    Asked for the route itself, it knows every address of every interface, also those of whole
    networks that were routed to this machine.

    Raises:
        OSError: it does not say.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    raw = socket.inet_pton(family, address)
    size = _REQUEST.size + len(raw)
    route = (family, len(raw) * 8, 0, 0, 0, 0, 0, 0, 0)
    attribute = (4 + len(raw), _RTA_DST)
    request = _REQUEST.pack(size, _RTM_GETROUTE, _NLM_F_REQUEST, 1, 0, *route, *attribute) + raw
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as kernel:
        kernel.send(request)
        answer = kernel.recv(4096)
    if _ANSWER.unpack_from(answer)[1] != _NLMSG_ERROR:
        return bool(_ANSWER.unpack_from(answer)[-1] != _RTN_UNICAST)
    error = -int(_ERROR.unpack_from(answer)[-1])
    if error in _NO_WAY:
        return False
    raise OSError(error, os.strerror(error))
