"""The sockets of a scoped run: connected to what it was given, and listened at by itself alone.

A socket of ours is put in the place of the harness's own. Of those that it listens at the broker
keeps a copy, by which it lets the run in, and nobody else.
"""

from __future__ import annotations

import errno
import os
import re
import socket
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import assert_never

from capsule_runtime.core.mediation import (
    Endpoint,
    check_endpoint,
    check_own,
    is_here,
    is_ipv6,
    read_endpoint,
)
from capsule_runtime.core.notices import Notice, Refused
from capsule_runtime.core.wanted import Bind, Connect, Listen
from capsule_runtime.host.caller import Caller
from capsule_runtime.host.notifications import Notifications
from capsule_runtime.host.run_listeners import Looking, RunListeners

_REMEMBERED_AT_MOST = 4096
_SOCKET = re.compile(rb"socket:\[(\d+)\]")

Dial = Callable[[], socket.socket]
"""Return a socket that does not block, connected or about to be; raise OSError where it cannot."""
OfSocket = Connect | Bind | Listen


@dataclass(frozen=True, slots=True)
class Seen:
    """A socket of the harness's, as it was looked at: its number, and how it was opened."""

    inode: int
    flags: int


class MediatedSockets:
    """What the broker of one run does with its sockets."""

    def __init__(
        self, calls: Notifications, endpoints: Mapping[Endpoint, Dial], looking: Looking
    ) -> None:
        """*looking* is how the run's processes are looked into."""
        self._calls = calls
        self._endpoints = endpoints
        taken = frozenset(place.port for place in endpoints if is_here(place))
        self._own = RunListeners(taken, looking)
        self._connected: OrderedDict[int, None] = OrderedDict()

    def close(self) -> None:
        """Let go of what the run listens at."""
        self._own.close()

    def look(self, descriptor: int, caller: Caller) -> Seen:
        """Return what is known of a socket.

        Raises:
            Refused: it is none.
        """
        flags = caller.opened(descriptor).flags
        socket_of = _SOCKET.fullmatch(caller.place_of(descriptor))
        if socket_of is None:
            raise Refused(errno.ENOTSOCK)
        return Seen(int(socket_of[1]), flags)

    def do(self, notice: Notice, wanted: OfSocket, seen: Seen) -> int:
        """Do what was *wanted*; return what the call ends with.

        Raises:
            Refused: it may not be.
            OSError: it cannot be.
        """
        match wanted:
            case Connect():
                return self._connect(notice, wanted, seen)
            case Bind():
                return self._bind(notice, wanted, seen)
            case Listen():
                return self._listen(notice, wanted, seen)
            case _:
                assert_never(wanted)

    def _connect(self, notice: Notice, wanted: Connect, seen: Seen) -> int:
        if seen.inode in self._connected:
            raise Refused(errno.EISCONN)
        endpoint = read_endpoint(wanted.address)
        with self._dialled(endpoint) as ours:
            return self._put(notice, wanted.descriptor, seen, ours)

    def _dialled(self, endpoint: Endpoint) -> socket.socket:
        if endpoint not in self._endpoints and is_here(endpoint) and self._own.is_at(endpoint.port):
            return self._own.dial(endpoint.port)
        check_endpoint(endpoint, self._endpoints)
        return self._endpoints[endpoint]()

    def _put(self, notice: Notice, descriptor: int, seen: Seen, ours: socket.socket) -> int:
        """Put a connection of ours in the place of theirs; return what the call ends with.

        One that is not connected yet is given away as it is. Who sends on it, or waits for it, waits
        for the connection as well; so we need not.
        """
        waits = self._replace(notice, descriptor, seen, ours)
        self._remember(os.fstat(ours.fileno()).st_ino)
        return 0 if waits or _is_connected(ours) else errno.EINPROGRESS

    def _replace(self, notice: Notice, descriptor: int, seen: Seen, ours: socket.socket) -> bool:
        """Put *ours* in the place of theirs; return whether its calls wait."""
        waits = not seen.flags & os.O_NONBLOCK
        ours.setblocking(waits)
        closes_on_exec = bool(seen.flags & os.O_CLOEXEC)
        self._calls.put(notice.id, ours.fileno(), descriptor, closes_on_exec=closes_on_exec)
        return waits

    def _remember(self, inode: int) -> None:
        """Remember a socket: connecting it again must not give it another connection."""
        self._connected[inode] = None
        if len(self._connected) > _REMEMBERED_AT_MOST:
            self._connected.popitem(last=False)

    def _bind(self, notice: Notice, wanted: Bind, seen: Seen) -> int:
        if seen.inode in self._connected or self._own.has(seen.inode):
            raise Refused(errno.EINVAL)
        endpoint = read_endpoint(wanted.address)
        check_own(endpoint)
        self._bound(notice, wanted.descriptor, seen, endpoint, of_ipv6=is_ipv6(wanted.address))
        return 0

    def _listen(self, notice: Notice, wanted: Listen, seen: Seen) -> int:
        if seen.inode in self._connected:
            raise Refused(errno.EINVAL)
        inode = seen.inode
        if not self._own.has(inode):
            # Who does not bind listens at a port that is free; of which family, nobody can see.
            anywhere = Endpoint("0.0.0.0", 0)
            inode = self._bound(notice, wanted.descriptor, seen, anywhere, of_ipv6=False)
        self._own.listen(inode)
        return 0

    def _bound(
        self, notice: Notice, descriptor: int, seen: Seen, endpoint: Endpoint, *, of_ipv6: bool
    ) -> int:
        """Put a socket of ours that is bound in the place of theirs; return its number."""
        ours = self._own.bind(
            endpoint, of_ipv6=of_ipv6, thread=notice.thread, descriptor=descriptor
        )
        inode = os.fstat(ours.fileno()).st_ino
        try:
            self._replace(notice, descriptor, seen, ours)
        except OSError:
            self._own.forget(inode)
            raise
        return inode


def _is_connected(ours: socket.socket) -> bool:
    try:
        ours.getpeername()
    except OSError as exc:
        if exc.errno != errno.ENOTCONN:
            raise
        return False
    return True
