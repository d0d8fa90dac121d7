"""Doors of a run that a test serves: who comes to them, where they lead, what the verdicts are."""

from __future__ import annotations

import math
import os
import ssl
import struct
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from socket import SO_LINGER, SOL_SOCKET, create_server, socket

import anyio
from anyio.abc import SocketAttribute, SocketStream

from capsule_runtime.core.destinations import Destination
from capsule_runtime.core.egress import Budgets, EgressRules
from capsule_runtime.core.verdicts import Verdict
from capsule_runtime.host.egress_proxy import serve_proxy
from capsule_runtime.host.network import Network
from capsule_runtime.host.passage import Limits, Tell, places_of_all
from capsule_runtime.host.sockets import accept
from capsule_runtime.host.upstream import serve_upstream
from capsule_runtime.testing import FakeNetwork

PATIENCE_SECONDS = 20
ADDRESS = "1.1.1.1"
"""Public, so that it may be dialled. The fake network leads it to a server of the test."""
SHORT = Budgets(refusal_seconds=0)


class Visitor:
    """One end of a connection, with as much patience as a test has."""

    def __init__(self, stream: SocketStream) -> None:
        self.stream = stream

    async def say(self, data: bytes) -> None:
        """Send *data*."""
        with anyio.fail_after(PATIENCE_SECONDS):
            await self.stream.send(data)

    async def hear(self, length: int) -> bytes:
        """Return the next *length* bytes, or what comes before the end."""
        heard = b""
        with anyio.fail_after(PATIENCE_SECONDS):
            while len(heard) < length:
                try:
                    heard += await self.stream.receive(min(65536, length - len(heard)))
                except anyio.EndOfStream:
                    break
        return heard

    async def hear_all(self) -> bytes:
        """Return all that comes, to the end."""
        return await self.hear(2**62)

    async def is_cut(self) -> bool:
        """Wait for the end; tell whether the connection was cut, and not closed in order."""
        try:
            await self.hear_all()
        except anyio.BrokenResourceError:
            return True
        return False

    async def end(self) -> None:
        """Say that nothing more comes."""
        await self.stream.send_eof()

    async def cut(self) -> None:
        """Break the connection off."""
        raw = self.stream.extra(SocketAttribute.raw_socket)
        raw.setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
        await self.stream.aclose()


class Place:
    """A server that a test speaks for."""

    def __init__(self, listener: socket) -> None:
        self._listener = listener
        self.port: int = listener.getsockname()[1]

    @asynccontextmanager
    async def visitor(self) -> AsyncGenerator[Visitor]:
        """Let the next one in."""
        with anyio.fail_after(PATIENCE_SECONDS):
            while (came := accept(self._listener)) is None:
                await anyio.wait_readable(self._listener)
            stream = await SocketStream.from_socket(came)
        async with stream:
            yield Visitor(stream)


class Door:
    """A listener of a run that is served, and the verdicts on those who came to it."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.told, self.verdicts = anyio.create_memory_object_stream[Verdict](math.inf)
        self._scope = anyio.CancelScope()
        self._closed = anyio.Event()

    async def serve(self, serve: Callable[[], Awaitable[None]]) -> None:
        """Do *serve* until `close`."""
        with self._scope:
            await serve()
        self._closed.set()

    async def close(self) -> None:
        """End it, and wait until it has ended."""
        self._scope.cancel()
        with anyio.fail_after(PATIENCE_SECONDS):
            await self._closed.wait()

    async def verdict(self) -> Verdict:
        """Return the next verdict."""
        with anyio.fail_after(PATIENCE_SECONDS):
            return await self.verdicts.receive()

    @asynccontextmanager
    async def visitor(self, said: bytes = b"") -> AsyncGenerator[Visitor]:
        """Come to the door, and say what is to be *said* first."""
        async with await anyio.connect_tcp("127.0.0.1", self.port) as stream:
            visitor = Visitor(stream)
            if said:
                await visitor.say(said)
            yield visitor

    async def asked(self, request: bytes) -> bytes:
        """Return all that is answered to *request*."""
        async with self.visitor(request) as visitor:
            return await visitor.hear_all()


@asynccontextmanager
async def open_place() -> AsyncGenerator[Place]:
    """Listen on loopback."""
    with create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        yield Place(listener)


@asynccontextmanager
async def open_door(serve: Callable[[socket, Tell], Awaitable[None]]) -> AsyncGenerator[Door]:
    """Have *serve* serve a new listener during the block."""
    with create_server(("127.0.0.1", 0)) as listener:
        door = Door(listener.getsockname()[1])
        with door.told, door.verdicts:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(door.serve, partial(serve, listener, door.told.send_nowait))
                try:
                    yield door
                finally:
                    tasks.cancel_scope.cancel()


@asynccontextmanager
async def open_proxy(
    hosts: Iterable[str],
    network: Network,
    budgets: Budgets = SHORT,
    of_all: anyio.Semaphore | None = None,
) -> AsyncGenerator[Door]:
    """Serve the proxy of a run that was granted *hosts*."""
    rules, limits = EgressRules.of(hosts), Limits(budgets, of_all or places_of_all())

    async def serve(listener: socket, tell: Tell) -> None:
        await serve_proxy(listener, rules, network, tell, limits)

    async with open_door(serve) as door:
        yield door


@asynccontextmanager
async def open_upstream(
    upstream: Destination, network: Network, budgets: Budgets = SHORT
) -> AsyncGenerator[Door]:
    """Serve the listener of a run that leads to *upstream*."""

    limits = Limits(budgets, places_of_all())

    async def serve(listener: socket, tell: Tell) -> None:
        await serve_upstream(listener, upstream, network, tell, limits)

    async with open_door(serve) as door:
        yield door


def leading_to(place: Place, *names: str, port: int = 443) -> FakeNetwork:
    """Return a network in which *names* lead to *place*."""
    return FakeNetwork(dict.fromkeys(names, (ADDRESS,)), {(ADDRESS, port): place.port})


def connect_head(target: str) -> bytes:
    """Return the head of a request for a tunnel to *target*."""
    return f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode()


def greeting_for(name: str | None) -> bytes:
    """Return the first bytes of a TLS connection to *name*, as OpenSSL writes them."""
    context = ssl.create_default_context()
    context.check_hostname = name is not None
    outgoing = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=name)
    try:
        client.do_handshake()
    except ssl.SSLWantReadError:
        return outgoing.read()
    raise AssertionError("nobody answered, and it went on")


def open_files() -> int:
    """Return how many descriptors this process has."""
    return len(os.listdir("/proc/self/fd"))
