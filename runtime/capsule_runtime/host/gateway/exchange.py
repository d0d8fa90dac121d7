"""One request of a client: its head and body as they are read, and what is answered."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus

import anyio
import h11
import msgspec

from capsule_runtime.core.http_head import (
    declared_length,
    malformed,
    read_head,
    wants_close,
)
from capsule_runtime.core.relaying import Answer, Fault, Header, RequestHead
from capsule_runtime.host.gateway.client import Client, Gone, Room, Unheard
from capsule_runtime.host.sockets import dismiss, receive, send_all, send_some

_BYTES_PER_CHUNK = 64
_RETRY_AFTER = (b"retry-after", b"1")
_WITHOUT_BODY = (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED)
_PHRASES = {status.value: status.phrase.encode() for status in HTTPStatus}


class Exchange:
    """One request, and its answer."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.bounds = client.bounds
        self._http = h11.Connection(h11.SERVER, client.bounds.head_bytes)
        self.has_begun = False
        """Whether the client has heard anything of an answer."""
        self._closes = False
        self._wants_no_body = False
        self._has_body = False

    def read(self, raw: bytes, authorities: frozenset[bytes]) -> RequestHead:
        """Return the head that is *raw*.

        Raises:
            Unheard: it is refused.
        """
        head = read_head(raw, authorities, self.bounds.headers)
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
        if (declared_length(head) or 0) > self.bounds.body_bytes:
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
            with anyio.move_on_after(self.bounds.body_seconds):
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
            if len(body) + len(event.data) > self.bounds.body_bytes:
                raise Unheard(self._too_large())
            if chunks > self.bounds.chunks + len(body) // _BYTES_PER_CHUNK:
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
        return Fault(413, "body", f"the body has more than {self.bounds.body_bytes} bytes")

    @property
    def may_go_on(self) -> bool:
        """Tell whether the connection can carry another request."""
        http = self._http
        return http.our_state is h11.DONE and http.their_state is h11.DONE and not self._closes

    async def answer(self, answer: Answer) -> None:
        """Send all of an answer.

        Raises:
            Gone: the client has left.
        """
        await self._send_bytes(self._whole(answer))

    def _whole(self, answer: Answer) -> bytes:
        headers = [*answer.headers, (b"content-length", str(len(answer.body)).encode())]
        events: list[h11.Event] = [self._response(answer.status, headers)]
        if answer.body and not self._wants_no_body:
            events.append(h11.Data(data=answer.body))
        return b"".join(self._http.send(event) or b"" for event in [*events, h11.EndOfMessage()])

    async def refuse(self, fault: Fault) -> None:
        """Say why, and end the conversation; the client can read it whatever it still sends."""
        self._closes = True
        await dismiss(self._client.peer, self._whole(answer_of(fault)))

    async def begin(self, status: int, headers: Sequence[Header]) -> None:
        """Send the head of an answer whose end nobody knows yet.

        Raises:
            Gone: the client has left.
        """
        self._has_body = not self._wants_no_body and status not in _WITHOUT_BODY
        await self._send(self._response(status, headers))

    async def pass_on(self, data: bytes) -> None:
        """Send a piece of the answer, as fast as the client takes it.

        Raises:
            Gone: the client has left.
        """
        if data and self._has_body:
            # As h11 would frame it, at a fifth of the cost: there is a piece for each few letters.
            await self._send_bytes(b"%x\r\n%b\r\n" % (len(data), data))

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
        peer = self._client.peer
        try:
            # Mostly there is room for all, and no deadline is needed.
            sent = send_some(peer, data)
            if sent == len(data):
                return
            with anyio.move_on_after(self.bounds.client_seconds):
                await send_all(peer, data[sent:])
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
