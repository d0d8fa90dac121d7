"""What the programs of one scoped run listen at: real sockets of TCP on the host's loopback, which
let in nobody but the run itself.

Each has a filter that drops all that knocks. For a connection of the run the broker binds the socket
that will knock, has the filter let in that one alone, knocks, which on loopback is done at once, and
closes the door again; what was let in keeps its own filter. So it is no use to know the port.

A port that a program chose is one of an address that is the run's own: it takes no port from the
host, and two runs can have the same one.
"""

from __future__ import annotations

import ctypes
import errno
import os
import random
import re
import socket
import struct
from collections import OrderedDict
from collections.abc import Callable
from contextlib import AbstractContextManager

from capsule_runtime.core.mediation import Endpoint

Looking = Callable[[], AbstractContextManager[None]]

AT_MOST = 64
"""Of the sockets of one run; of one more, the oldest is let in nobody any more."""
_SEARCHES_AT_MOST = 500
"""Of one run: each looks at all descriptors of the machine that we may see."""
_WAITING_AT_MOST = 4096
_LOOPBACK = "127.0.0.1"
_FIRST_FREE_PORT = 1024
"""Below it a program needs a right, which no harness has."""
_SOL_IPV6, _IPV6_V6ONLY = 41, 26

_SO_ATTACH_FILTER = 26
_INSTRUCTION = struct.Struct("HBBI")
_LOAD_WORD, _LOAD_HALF, _IF_EQUAL, _RETURN = 0x20, 0x28, 0x15, 0x06
_FROM, _FROM_PORT = (1 << 32) - 0x100000 + 12, 0
"""Where the sender stands: in the header of IP, and in that of TCP."""
_ALL_OF_IT = 0xFFFFFFFF
_NOBODY = [(_RETURN, 0, 0, 0)]
_DESCRIPTOR = re.compile(r"[0-9]+")


class _Bound:
    """A socket that a program has bound. *thread* was seen to have it as its *descriptor*."""

    def __init__(self, held: socket.socket, thread: int, descriptor: int) -> None:
        self.held = held
        self.inode = os.fstat(held.fileno()).st_ino
        self.address: str = held.getsockname()[0]
        self.port: int = held.getsockname()[1]
        self.thread = thread
        self.descriptor = descriptor
        self.listens = False

    @property
    def place(self) -> tuple[str, int]:
        """Return where it is reached: an address of IPv4, which one of IPv6 may stand for."""
        return self.address.removeprefix("::ffff:"), self.port

    def is_where_it_was(self) -> bool:
        """Whether it is still bound as it was; who shuts it down may have it bound anew."""
        return bool(self.held.getsockname()[:2] == (self.address, self.port))


class RunListeners:
    """The sockets that the programs of one run have bound."""

    def __init__(self, taken: frozenset[int], looking: Looking) -> None:
        """*taken* are the ports at which the run finds something else.

        *looking* is within which its processes may be looked into.
        """
        self._taken = taken
        self._looking = looking
        parts = random.randint(64, 127), random.randint(1, 254), random.randint(1, 254)
        self._own_address = ".".join(map(str, (127, *parts)))
        self._bound: OrderedDict[int, _Bound] = OrderedDict()
        self._searches = 0

    def close(self) -> None:
        """Let go of all. What the run still has lets in nobody."""
        for bound in self._bound.values():
            bound.held.close()
        self._bound.clear()

    def has(self, inode: int) -> bool:
        """Tell whether this is one of them."""
        return inode in self._bound

    def bind(
        self, wanted: Endpoint, *, of_ipv6: bool, thread: int, descriptor: int
    ) -> socket.socket:
        """Return a socket that is bound where *thread* wants its *descriptor* to be; it stays ours.

        Raises:
            OSError: it cannot be bound there, as the kernel would say.
        """
        if 0 < wanted.port < _FIRST_FREE_PORT:
            raise _error(errno.EACCES)
        if wanted.port in self._taken:
            raise _error(errno.EADDRINUSE)
        if (old := self._at(wanted.port)) is not None:
            if self._is_held(old):
                raise _error(errno.EADDRINUSE)
            self.forget(old.inode)
        address = self._own_address if wanted.port else _LOOPBACK
        bound = _Bound(_open(address, wanted.port, of_ipv6=of_ipv6), thread, descriptor)
        self._bound[bound.inode] = bound
        if len(self._bound) > AT_MOST:
            self.forget(next(iter(self._bound)))
        return bound.held

    def listen(self, inode: int) -> None:
        """Have the socket *inode* be listened at.

        Raises:
            OSError: it is not where it was bound any more.
        """
        bound = self._bound[inode]
        if not bound.is_where_it_was():
            raise _error(errno.EINVAL)
        bound.held.listen(_WAITING_AT_MOST)
        bound.listens = True

    def is_at(self, port: int) -> bool:
        """Tell whether a program of the run listens at *port*, as far as is known."""
        bound = self._at(port)
        return bound is not None and bound.listens

    def dial(self, port: int) -> socket.socket:
        """Return a socket that does not block, connected to who listens at *port*.

        Raises:
            OSError: nobody does any more, or too many wait there.
        """
        bound = self._at(port)
        if bound is None or not self._is_held(bound):
            if bound is not None:
                self.forget(bound.inode)
            raise _error(errno.ECONNREFUSED)
        caller = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            caller.bind((_LOOPBACK, 0))
            _let_in(bound.held, _only(*caller.getsockname()))
            try:
                caller.connect_ex(bound.place)
                caller.getpeername()
            finally:
                _let_in(bound.held, _NOBODY)
        except OSError as exc:
            caller.close()
            raise _error(errno.ECONNREFUSED) from exc
        return caller

    def _at(self, port: int) -> _Bound | None:
        return next((bound for bound in self._bound.values() if bound.port == port), None)

    def forget(self, inode: int) -> None:
        """Let go of one of them: whoever has it is reached by nobody."""
        self._bound.pop(inode).held.close()

    def _is_held(self, bound: _Bound) -> bool:
        """Tell whether anybody but us still has it; our having it keeps its port."""
        link = f"socket:[{bound.inode}]"
        with self._looking():
            if _leads_to(f"/proc/{bound.thread}/fd/{bound.descriptor}", link):
                return True
            if self._searches >= _SEARCHES_AT_MOST:
                return True
            self._searches += 1
            found = _search(link)
        if found is not None:
            bound.thread, bound.descriptor = found
        return found is not None


def _open(address: str, port: int, *, of_ipv6: bool) -> socket.socket:
    family = socket.AF_INET6 if of_ipv6 else socket.AF_INET
    opened = socket.socket(family, socket.SOCK_STREAM)
    try:
        if of_ipv6:
            opened.setsockopt(_SOL_IPV6, _IPV6_V6ONLY, 0)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _let_in(opened, _NOBODY)
        opened.bind((f"::ffff:{address}" if of_ipv6 else address, port))
    except OSError:
        opened.close()
        raise
    return opened


def _only(address: str, port: int) -> list[tuple[int, int, int, int]]:
    """Return the program that lets in who comes from there, and nobody else."""
    (number,) = struct.unpack(">I", socket.inet_aton(address))
    return [
        (_LOAD_WORD, 0, 0, _FROM),
        (_IF_EQUAL, 0, 3, number),
        (_LOAD_HALF, 0, 0, _FROM_PORT),
        (_IF_EQUAL, 0, 1, port),
        (_RETURN, 0, 0, _ALL_OF_IT),
        (_RETURN, 0, 0, 0),
    ]


def _let_in(listener: socket.socket, program: list[tuple[int, int, int, int]]) -> None:
    """Have the kernel run *program* over each packet that knocks at *listener*."""
    code = b"".join(_INSTRUCTION.pack(*instruction) for instruction in program)
    held = ctypes.create_string_buffer(code, len(code))
    header = struct.pack("HP", len(program), ctypes.addressof(held))
    listener.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, header)


def _search(link: str) -> tuple[int, int] | None:
    """Return a process that has what *link* names, and as which descriptor; we are not meant."""
    ours = str(os.getpid())
    for process in filter(_DESCRIPTOR.fullmatch, os.listdir("/proc")):
        folder = f"/proc/{process}/fd"
        if process == ours:
            continue
        try:
            descriptors = os.listdir(folder)
        except OSError:
            continue  # It has ended, or may not be looked into: then it is none of the run's.
        for descriptor in descriptors:
            if _leads_to(f"{folder}/{descriptor}", link):
                return int(process), int(descriptor)
    return None


def _leads_to(path: str, link: str) -> bool:
    try:
        return os.readlink(path) == link
    except OSError:
        return False


def _error(number: int) -> OSError:
    return OSError(number, os.strerror(number))
