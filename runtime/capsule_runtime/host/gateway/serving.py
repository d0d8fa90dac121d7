"""The gateway of one run: who comes to its listener, and what becomes of each request."""

from __future__ import annotations

from collections.abc import Iterable
from socket import socket
from typing import assert_never

import anyio

from capsule_runtime.core.relaying import Answer, RequestHead
from capsule_runtime.host.gateway.bounds import Bounds
from capsule_runtime.host.gateway.client import Client, Gone, Room, Unheard
from capsule_runtime.host.gateway.contract import Admitted, Policy
from capsule_runtime.host.gateway.exchange import Exchange, answer_of
from capsule_runtime.host.gateway.relay import relay
from capsule_runtime.host.gateway.upstreams import Unserved, Upstreams
from capsule_runtime.host.sockets import accept

_RETRY_SECONDS = 0.1


class Gateway:
    """What the connections of one run share."""

    def __init__(
        self,
        policy: Policy,
        upstreams: Upstreams,
        authorities: Iterable[str],
        of_all: anyio.Semaphore,
        bounds: Bounds | None = None,
    ) -> None:
        """Ask *policy* about each call.

        *authorities* are the names, `HOST:PORT`, by which the run knows its listener; a request
        for any other is refused. *of_all* are the places that all runs of a supervisor share.
        """
        self.policy = policy
        self.upstreams = upstreams
        self.authorities = frozenset(name.lower().encode() for name in authorities)
        self.of_all = of_all
        self.bounds = bounds or Bounds()
        self.room = Room(self.bounds.bodies_bytes)
        self.places = anyio.Semaphore(self.bounds.connections)
        self.idle: dict[Client, anyio.CancelScope] = {}
        """Those who ask for nothing at the moment, the longest first."""
        self.is_crowded = False
        """Whether somebody waits for a place: then nobody keeps one to ask again."""


async def serve_gateway(listener: socket, gateway: Gateway) -> None:
    """Serve the requests on *listener*, which is one run's, until cancelled; then all are cut.

    When all places are taken, who has been asking for nothing longest makes room for the next.
    The listener stays open; it is its owner's.

    Raises:
        OSError: the listener is broken.
    """
    listener.setblocking(False)
    places, of_all = gateway.places, gateway.of_all
    async with anyio.create_task_group() as tasks:
        while True:
            await anyio.wait_readable(listener)
            if not places.value:
                _make_room(gateway)
            gateway.is_crowded = not places.value
            await places.acquire()
            gateway.is_crowded = False
            await of_all.acquire()
            if (peer := accept(listener)) is not None:
                tasks.start_soon(_attend, gateway, peer)
            else:
                of_all.release()
                places.release()
                await anyio.sleep(_RETRY_SECONDS)


def _make_room(gateway: Gateway) -> None:
    if client := next(iter(gateway.idle), None):
        gateway.idle.pop(client).cancel()


async def _attend(gateway: Gateway, peer: socket) -> None:
    """See to one connection, to its end."""
    client = Client(peer, gateway.bounds)
    try:
        with peer:
            while await _has_asked(gateway, client):
                if not await _see_to(gateway, client) or gateway.is_crowded:
                    break
    finally:
        gateway.of_all.release()
        gateway.places.release()


async def _has_asked(gateway: Gateway, client: Client) -> bool:
    """Wait for the next request; tell whether one has begun."""
    with anyio.move_on_after(gateway.bounds.idle_seconds) as scope:
        gateway.idle[client] = scope
        try:
            return await client.begins()
        finally:
            gateway.idle.pop(client, None)
    return False


async def _see_to(gateway: Gateway, client: Client) -> bool:
    """See to one request; tell whether the connection can carry another."""
    exchange = Exchange(client)
    try:
        await _hear_and_do(gateway, client, exchange)
    except Unheard as unheard:
        await exchange.refuse(unheard.fault)
        return False
    except Gone:
        return False
    return exchange.may_go_on


async def _hear_and_do(gateway: Gateway, client: Client, exchange: Exchange) -> None:
    head = exchange.read(await client.head(), gateway.authorities)
    body = await exchange.body(gateway.room)
    size = len(body)
    is_heard = False
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_watch, client, tasks.cancel_scope)
            is_heard = await _do(gateway, exchange, head, body)
            tasks.cancel_scope.cancel()
    finally:
        gateway.room.give_back(size)
    if not is_heard:
        raise Gone


async def _do(gateway: Gateway, exchange: Exchange, head: RequestHead, body: bytearray) -> bool:
    """Have the policy decide, and do so; tell whether the client has heard a whole answer.

    Nothing is raised of that, for the task group around it would wrap it.
    """
    decided = await gateway.policy.admit(head, _taken(body))
    try:
        match decided:
            case Answer():
                await exchange.answer(decided)
            case Admitted():
                await _relay(gateway, exchange, head, decided)
            case _:
                assert_never(decided)
    except Gone:
        return False
    return True


async def _relay(gateway: Gateway, exchange: Exchange, head: RequestHead, call: Admitted) -> None:
    try:
        await relay(gateway.upstreams, exchange, head, call, gateway.bounds)
    except Unserved as unserved:
        # Of an answer that has begun only the end of the connection can tell that it is cut.
        if exchange.has_begun:
            raise Gone from None
        await exchange.answer(answer_of(unserved.fault))


def _taken(body: bytearray) -> bytes:
    """Return what is in *body*, of which nothing is left: it can be large."""
    taken = bytes(body)
    body.clear()
    return taken


async def _watch(client: Client, scope: anyio.CancelScope) -> None:
    await client.has_left()
    scope.cancel()
