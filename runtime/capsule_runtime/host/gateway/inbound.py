"""One connection of a client: its requests one after the other, and what is answered to each."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from socket import MSG_PEEK, socket

import anyio
import h11
import msgspec

from capsule_runtime.core.http_head import (
    declared_length,
    end_of_head,
    malformed,
    read_head,
    wants_close,
)
from capsule_runtime.core.relaying import Answer, Fault, Header, RequestHead
from capsule_runtime.host.gateway.bounds import Bounds
from capsule_runtime.host.sockets import dismiss, receive, send_all

_BYTES_PER_CHUNK = 64
_RETRY_AFTER = (b"retry-after", b"1")
_PHRASES = {status.value: status.phrase.encode() for status in HTTPStatus}


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
        while not self.said.lstrip(b"\r\n"):
            # RFC 9112, 2.2: an empty line before a request is ignored. One, not a stream of them.
            if len(self.said) > 2:
                return False
            if not (data := await self._heard()):
                return False
            self.said += data
        self.said = self.said.lstrip(b"\r\n")
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


class Exchange:
    """One request, and its answer."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._bounds = client.bounds
        self._http = h11.Connection(h11.SERVER, client.bounds.head_bytes)
        self.has_begun = False
        """Whether the client has heard anything of an answer."""
        self._closes = False
        self._wants_no_body = False

    def read(self, raw: bytes, authorities: frozenset[bytes]) -> RequestHead:
        """Return the head that is *raw*.

        Raises:
            Unheard: it is refused.
        """
        head = read_head(raw, authorities, self._bounds.headers)
        if isinstance(head, Fault):
            raise Unheard(head)
        self._http.receive_data(raw)
        try:
            event = self._http.next_event()
        except h11.RemoteProtocolError:
            raise Unheard(malformed("the head is no HTTP")) from None
        assert isinstance(event, h11.Request)
        self._closes = wants_close(head.headers)
        self._wants_no_body = head.method == "HEAD"
        if (declared_length(head) or 0) > self._bounds.body_bytes:
            raise Unheard(self._too_large())
        return head

    async def body(self, room: Room) -> bytearray:
        """Return the body; as many bytes of *room* are taken as it has.

        Raises:
            Unheard: it is refused, or does not come in time.
            Gone: the client left within it.
        """
        body = bytearray()
        try:
            with anyio.move_on_after(self._bounds.body_seconds):
                await self._read_body(body, room)
                return body
            raise Unheard(Fault(408, "slow-body", "the body of the request took too long"))
        except BaseException:
            room.give_back(len(body))
            raise

    async def _read_body(self, body: bytearray, room: Room) -> None:
        client, chunks = self._client, 0
        if client.said:
            self._http.receive_data(client.said)
            client.said = b""
        while not isinstance(event := await self._next(), h11.EndOfMessage):
            chunks += 1
            if len(body) + len(event.data) > self._bounds.body_bytes:
                raise Unheard(self._too_large())
            if chunks > self._bounds.chunks + len(body) // _BYTES_PER_CHUNK:
                raise Unheard(malformed("the body comes in too many chunks"))
            if not room.take(len(event.data)):
                message = "the bodies of all requests under way are too much"
                raise Unheard(Fault(503, "bodies", message))
            body += event.data
        if event.headers:
            raise Unheard(malformed("headers behind the body"))
        client.said = self._http.trailing_data[0]

    async def _next(self) -> h11.Data | h11.EndOfMessage:
        while True:
            try:
                event = self._http.next_event()
            except h11.RemoteProtocolError:
                raise Unheard(malformed("the body is not framed as HTTP says")) from None
            if isinstance(event, h11.Data | h11.EndOfMessage):
                return event
            if self._http.they_are_waiting_for_100_continue:
                await self._send(h11.InformationalResponse(status_code=100, headers=[]))
            try:
                data = await receive(self._client.peer)
            except OSError:
                raise Gone from None
            if not data:
                raise Gone
            self._http.receive_data(data)

    def _too_large(self) -> Fault:
        return Fault(413, "body", f"the body has more than {self._bounds.body_bytes} bytes")

    @property
    def may_go_on(self) -> bool:
        """Tell whether the connection can carry another request."""
        http = self._http
        return http.our_state is h11.DONE and http.their_state is h11.DONE and not self._closes

    async def answer(self, answer: Answer) -> None:
        """Send all of an answer; the client can read it whatever it still sends.

        Raises:
            Gone: the client has left.
        """
        is_heard = self._http.their_state in (h11.DONE, h11.MUST_CLOSE)
        self._closes = self._closes or not is_heard
        headers = [*answer.headers, (b"content-length", str(len(answer.body)).encode())]
        events: list[h11.Event] = [self._response(answer.status, headers)]
        if answer.body and not self._wants_no_body:
            events.append(h11.Data(data=answer.body))
        data = b"".join(self._http.send(event) or b"" for event in [*events, h11.EndOfMessage()])
        if is_heard:
            await self._send_bytes(data)
        else:
            await dismiss(self._client.peer, data)

    async def begin(self, status: int, headers: Sequence[Header]) -> None:
        """Send the head of an answer whose end nobody knows yet.

        Raises:
            Gone: the client has left.
        """
        await self._send(self._response(status, headers))

    async def pass_on(self, data: bytes) -> None:
        """Send a piece of the answer, as fast as the client takes it.

        Raises:
            Gone: the client has left.
        """
        if data:
            await self._send(h11.Data(data=data))

    async def finish(self) -> None:
        """Say that the answer is whole.

        Raises:
            Gone: the client has left.
        """
        await self._send(h11.EndOfMessage())

    def _response(self, status: int, headers: Sequence[Header]) -> h11.Response:
        self.has_begun = True
        close = [(b"connection", b"close")] if self._closes else []
        return h11.Response(
            status_code=status, headers=[*headers, *close], reason=_PHRASES.get(status, b"")
        )

    async def _send(self, event: h11.Event) -> None:
        await self._send_bytes(self._http.send(event) or b"")

    async def _send_bytes(self, data: bytes) -> None:
        try:
            with anyio.move_on_after(self._bounds.client_seconds):
                await send_all(self._client.peer, data)
                return
        except OSError:
            raise Gone from None
        raise Gone


def answer_of(fault: Fault) -> Answer:
    """Return *fault* in a shape in which the libraries of all providers find the message."""
    kind = f"capsule_gateway_{fault.code}".replace("-", "_")
    error = {"type": kind, "code": kind, "message": f"capsule gateway: {fault.message}"}
    headers: list[Header] = [(b"content-type", b"application/json")]
    if fault.status == HTTPStatus.SERVICE_UNAVAILABLE:
        headers.append(_RETRY_AFTER)
    return Answer(
        fault.status, tuple(headers), msgspec.json.encode({"type": "error", "error": error})
    )
