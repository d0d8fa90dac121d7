"""The proxy of one run: CONNECT to what was granted, and nothing else.

Names are looked up here, once, and what was found is dialled as it stands: a name that leads
somewhere else a moment later changes nothing. Not a byte of a tunnel is passed on before the
greeting of its TLS was read, and is for the host that was asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from socket import socket

import anyio

from capsule_runtime.core.client_hello import Hello, HelloReader
from capsule_runtime.core.destinations import Destination
from capsule_runtime.core.egress import Budgets, EgressRules, judge_hello, refusal_of
from capsule_runtime.core.proxy_request import PlainRequest, Request, RequestReader, Tunnel
from capsule_runtime.core.verdicts import STATUS, Ending, Refusal, Why
from capsule_runtime.host.dialling import addresses_of, dial_one
from capsule_runtime.host.forwarding import Allowance, Forwarding
from capsule_runtime.host.network import Network
from capsule_runtime.host.passage import Limits, Passage, Refused, Tell, serve
from capsule_runtime.host.sockets import dismiss, receive, reset_on_close, send_all

_GO_ON = b"HTTP/1.1 200 Connection established\r\n\r\n"
_UNRECOGNIZED_NAME = b"\x15\x03\x03\x00\x02\x02\x70"
"""The fatal alert of TLS for a server that is not here: the harness's own library says so."""
_HEAD_CHUNK_BYTES = 16 * 1024
_LOOKUPS_AT_ONCE = 4


async def serve_proxy(
    listener: socket,
    rules: EgressRules,
    network: Network,
    tell: Tell,
    limits: Limits,
) -> None:
    """Serve the requests on *listener*, which is one run's, until cancelled.

    *tell* gets the verdict on each as its connection ends. The listener stays open.

    Raises:
        OSError: the listener is broken.
    """
    proxy = _Proxy(rules, network, limits.budgets)
    await serve(listener, limits, proxy.attend, tell)


class _Proxy:
    """What the connections of one run share."""

    def __init__(self, rules: EgressRules, network: Network, budgets: Budgets) -> None:
        self.budgets = budgets
        self._rules = rules
        self._network = network
        self._allowance = Allowance(budgets)
        # All runs share the machine's resolver: names that nobody answers for must not fill it.
        self._lookups = anyio.Semaphore(_LOOKUPS_AT_ONCE)

    async def attend(self, passage: Passage) -> None:
        """See to one connection, to its end."""
        try:
            asked = await self._request(passage)
            if asked is None:
                return
            request, first = asked
            server = await self._admitted(passage, request.target)
        except Refused as refused:
            passage.refuse(refused.refusal)
            await dismiss(passage.client, _answer(refused.refusal))
            return
        try:
            match request:
                case Tunnel():
                    await self._tunnel(passage, server, first)
                case PlainRequest():
                    await self._plain(passage, server, request, first)
        except Refused as refused:
            passage.refuse(refused.refusal)
            server.close()
            is_tls = refused.refusal.why is Why.SNI
            await dismiss(passage.client, _UNRECOGNIZED_NAME if is_tls else b"")
        except OSError:
            passage.reason = Ending.RESET
            reset_on_close(passage.client, server)

    async def _request(self, passage: Passage) -> tuple[Request, bytes] | None:
        """Return what the run asks for, and what it sent behind that; None if it left before."""
        reader = RequestReader()
        with anyio.move_on_after(self.budgets.head_seconds):
            while True:
                if not (data := await _heard(passage.client)):
                    if reader.is_empty:
                        return None
                    raise Refused(Why.MALFORMED, "the connection ended within its request")
                match reader.feed(data):
                    case None:
                        pass
                    case Refusal(why, message):
                        raise Refused(why, message)
                    case request:
                        passage.target = request.target
                        return request, reader.rest
        if reader.is_empty:
            return None
        raise Refused(Why.TOO_SLOW, "the request took too long to arrive")

    async def _admitted(self, passage: Passage, target: Destination) -> socket:
        """Return a connection to *target*, if the rules let it through."""
        if refusal := self._rules.judge(target):
            raise Refused(refusal.why, refusal.message)
        if self._allowance.is_spent:
            raise Refused(Why.SPENT, "the run has sent or received as much as it may")
        found, seconds = await self._found(target), self.budgets.dial_seconds
        return await dial_one(self._network, passage, found, target.port, seconds)

    async def _found(self, target: Destination) -> Sequence[str]:
        """Return the addresses of *target* that may be dialled."""
        async with self._lookups:
            found = await addresses_of(self._network, target, self.budgets.resolve_seconds)
        try:
            sifted = self._rules.sift(target, found, self._network.is_own)
        except OSError as exc:
            why = "this machine does not tell which addresses are its own"
            raise Refused(Why.ADDRESS, why) from exc
        if not sifted.dialable:
            refusal = refusal_of(target, sifted)
            raise Refused(refusal.why, refusal.message)
        return sifted.dialable

    async def _tunnel(self, passage: Passage, server: socket, first: bytes) -> None:
        await send_all(passage.client, _GO_ON)
        greeting = await self._greeting(passage, first)
        if greeting is None:
            passage.reason = Ending.CLOSED
            return
        await self._forward(passage, server, greeting)

    async def _greeting(self, passage: Passage, data: bytes) -> bytes | None:
        """Return the first bytes of the tunnel, which are TLS for its host; None if none came."""
        assert passage.target is not None
        reader = HelloReader()
        with anyio.move_on_after(self.budgets.head_seconds):
            while data := data or await receive(passage.client, _HEAD_CHUNK_BYTES):
                match reader.feed(data):
                    case None:
                        data = b""
                    case Hello(server_name):
                        if refusal := judge_hello(passage.target, server_name):
                            raise Refused(refusal.why, refusal.message)
                        return reader.taken
                    case no:
                        raise Refused(Why.NOT_TLS, f"{passage.target} gets TLS only: {no.why}")
            if not reader.taken:
                return None
            raise Refused(Why.NOT_TLS, "the connection ended within its TLS greeting")
        raise Refused(Why.TOO_SLOW, "the TLS greeting took too long to arrive")

    async def _plain(
        self, passage: Passage, server: socket, request: PlainRequest, first: bytes
    ) -> None:
        # What a client sends behind its body would be another request, which nobody judged.
        body = first[: request.body_bytes]
        left = request.body_bytes - len(body)
        await self._forward(passage, server, request.head + body, left)
        if passage.reason is Ending.CLOSED:
            server.close()
            await dismiss(passage.client, b"")  # it may be sending a body that nobody wanted

    async def _forward(
        self, passage: Passage, server: socket, first: bytes, left: int | None = None
    ) -> None:
        client, tally = passage.client, passage.tally
        forwarding = Forwarding(client, server, self.budgets, self._allowance, tally)
        passage.reason = await forwarding.run(first, left)


async def _heard(client: socket) -> bytes:
    """Return what *client* sends; one that breaks off has sent all that it will."""
    try:
        return await receive(client, _HEAD_CHUNK_BYTES)
    except OSError:
        return b""


def _answer(refusal: Refusal) -> bytes:
    """Return the refusal as HTTP, in words for whoever reads the harness's output."""
    body = f"capsule: {refusal.message} ({refusal.why})\n".encode()
    allow = "Allow: CONNECT\r\n" if refusal.why is Why.METHOD else ""
    head = (
        f"HTTP/1.1 {STATUS[refusal.why]}\r\n{allow}Content-Type: text/plain; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode("ascii") + body
