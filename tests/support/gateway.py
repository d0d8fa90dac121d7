"""A gateway that a test serves: its policy, its upstream, and whoever comes to it."""

from __future__ import annotations

import ssl
import subprocess
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from socket import create_server

import anyio
import anyio.lowlevel
import h11
from anyio.abc import ByteStream, SocketStream
from anyio.streams.tls import TLSStream

from capsule_runtime.core.origins import Origin
from capsule_runtime.core.relaying import (
    Answer,
    Credential,
    Ending,
    Forward,
    Header,
    RequestHead,
)
from capsule_runtime.host.gateway import (
    Admitted,
    Bounds,
    Gateway,
    open_upstreams,
    serve_gateway,
)
from capsule_runtime.host.gateway.upstreams import Reach
from capsule_runtime.host.passage import places_of_all
from support.doors import PATIENCE_SECONDS, Visitor

AUTHORITY = "gate.test:8080"
KEY = "sk-real-0123456789abcdef"
CREDENTIAL = Credential(b"authorization", f"Bearer {KEY}".encode())
EVENT = b'data: {"delta":"x"}\n\n'


class Tape:
    """A meter that keeps what it is told, and passes all of it on."""

    def __init__(self) -> None:
        self.status: int | None = None
        self.headers: Sequence[Header] = ()
        self.chunks: list[bytes] = []
        self.endings: list[Ending] = []
        self.ended = anyio.Event()

    @property
    def data(self) -> bytes:
        """Return all that was passed on."""
        return b"".join(self.chunks)

    def head(self, status: int, headers: Sequence[Header]) -> None:
        assert self.status is None
        self.status, self.headers = status, headers

    def chunk(self, data: bytes) -> bytes:
        assert self.status is not None
        assert not self.endings
        self.chunks.append(data)
        return data

    async def end(self, ending: Ending) -> None:
        await anyio.lowlevel.checkpoint()
        self.endings.append(ending)
        self.ended.set()

    async def ending(self) -> Ending:
        """Wait for the end; return the one there was."""
        with anyio.fail_after(PATIENCE_SECONDS):
            await self.ended.wait()
        [ending] = self.endings
        return ending


class Always:
    """A policy that lets every call go on to one place."""

    def __init__(self, origin: Origin, credential: Credential | None = CREDENTIAL) -> None:
        self.origin = origin
        self.credential = credential
        self.heads: list[RequestHead] = []
        self.bodies: list[bytes] = []
        self.tapes: list[Tape] = []
        self.answer: Answer | None = None
        self.headers: tuple[Header, ...] = ()
        self.new_tape: Callable[[], Tape] = Tape

    async def admit(self, head: RequestHead, body: bytes) -> Admitted | Answer:
        """Keep what was asked, and decide."""
        await anyio.lowlevel.checkpoint()
        self.heads.append(head)
        self.bodies.append(body)
        if self.answer:
            return self.answer
        self.tapes.append(self.new_tape())
        forward = Forward(self.origin, head.target, body, self.credential, self.headers)
        return Admitted(forward, self.tapes[-1])


class Heard:
    """A request that has come to an upstream, and the connection on which it is answered."""

    def __init__(self, request: h11.Request, stream: ByteStream) -> None:
        self.method = request.method.decode()
        self.target = request.target.decode()
        self.headers = [(bytes(name), bytes(value)) for name, value in request.headers]
        self.body = b""
        self.stream = stream

    def values(self, name: str) -> list[str]:
        """Return the values of header *name*."""
        return [value.decode() for key, value in self.headers if key.decode() == name]

    async def say(self, data: bytes) -> None:
        """Send *data* as it stands."""
        with anyio.fail_after(PATIENCE_SECONDS):
            await self.stream.send(data)

    async def say_whole(self, body: bytes, head: str = "", status: str = "200 OK") -> None:
        """Send a whole answer; *head* are more lines of its head, each with its end."""
        length = f"Content-Length: {len(body)}\r\n"
        body = b"" if self.method == "HEAD" else body
        await self.say(f"HTTP/1.1 {status}\r\n{length}{head}\r\n".encode() + body)

    async def begin(self, head: str = "", status: str = "200 OK") -> None:
        """Send the head of an answer in chunks."""
        framing = "Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n"
        await self.say(f"HTTP/1.1 {status}\r\n{framing}{head}\r\n".encode())

    async def chunk(self, data: bytes) -> None:
        """Send a chunk; an empty one is the end."""
        await self.say(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    async def is_left(self) -> None:
        """Wait until the gateway has closed the connection."""
        with anyio.fail_after(PATIENCE_SECONDS):
            try:
                while True:
                    await self.stream.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
                return


Script = Callable[[Heard], Awaitable[None]]


async def hello(heard: Heard) -> None:
    """Answer with one word."""
    await heard.say_whole(b"hello")


async def stream_of(heard: Heard, count: int = 3) -> None:
    """Answer with *count* events."""
    await heard.begin()
    for _ in range(count):
        await heard.chunk(EVENT)
    await heard.chunk(b"")


class ScriptedUpstream:
    """A server on loopback that answers each request as *script* says."""

    def __init__(self, script: Script, tls: ssl.SSLContext | None = None) -> None:
        self._script = script
        self._tls = tls
        self.heard: list[Heard] = []
        self.connections = 0

    async def attend(self, stream: SocketStream) -> None:
        """See to one connection."""
        self.connections += 1
        async with stream:
            try:
                if self._tls is None:
                    return await self._converse(stream)
                tls = await TLSStream.wrap(
                    stream, server_side=True, ssl_context=self._tls, standard_compatible=False
                )
                async with tls:
                    await self._converse(tls)
            except (
                anyio.BrokenResourceError,
                anyio.ClosedResourceError,
                anyio.EndOfStream,
                ssl.SSLError,
            ):
                return  # the gateway went away, or did not want to come in

    async def _converse(self, stream: ByteStream) -> None:
        rest = b""
        while True:
            http = h11.Connection(h11.SERVER)
            if rest:
                http.receive_data(rest)
            heard = await _heard(http, stream)
            if heard is None:
                return
            self.heard.append(heard)
            rest = http.trailing_data[0]
            await self._script(heard)


async def _heard(http: h11.Connection, stream: ByteStream) -> Heard | None:
    heard: Heard | None = None
    while True:
        match http.next_event():
            case h11.Request() as request:
                heard = Heard(request, stream)
            case h11.Data() as data:
                assert heard
                heard.body += data.data
            case h11.EndOfMessage():
                return heard
            case h11.ConnectionClosed():
                return None
            case _:
                try:
                    http.receive_data(await stream.receive())
                except anyio.EndOfStream:
                    return None


class Gate:
    """A served gateway, as a test sees it."""

    def __init__(self, port: int, policy: Always, upstream: ScriptedUpstream) -> None:
        self.port = port
        self.policy = policy
        self.upstream = upstream
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

    @property
    def tape(self) -> Tape:
        """Return the meter of the newest call."""
        return self.policy.tapes[-1]

    @asynccontextmanager
    async def visitor(self, said: bytes = b"") -> AsyncGenerator[Visitor]:
        """Come to the gate, and say what is to be *said* first."""
        async with await anyio.connect_tcp("127.0.0.1", self.port) as stream:
            visitor = Visitor(stream)
            if said:
                await visitor.say(said)
            yield visitor

    async def asked(self, said: bytes) -> bytes:
        """Return all that is answered to *said*, to the end of the connection."""
        async with self.visitor(said) as visitor:
            return await visitor.hear_all()


@asynccontextmanager
async def open_scripted(
    script: Script, tls: ssl.SSLContext | None = None
) -> AsyncGenerator[tuple[ScriptedUpstream, Origin]]:
    """Serve an upstream that does as *script* says."""
    upstream = ScriptedUpstream(script, tls)
    async with AsyncExitStack() as stack:
        listener = await anyio.create_tcp_listener(
            local_host="127.0.0.1", local_port=0, backlog=2048
        )
        await stack.enter_async_context(listener)
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        tasks = await stack.enter_async_context(anyio.create_task_group())
        tasks.start_soon(listener.serve, upstream.attend)
        scheme = "http" if tls is None else "https"
        host = "127.0.0.1" if tls is None else "localhost"
        try:
            yield upstream, Origin(scheme, host, port, "/base")
        finally:
            tasks.cancel_scope.cancel()


@asynccontextmanager
async def open_gate(
    script: Script = hello,
    bounds: Bounds | None = None,
    *,
    reach: Reach | None = None,
    server_tls: ssl.SSLContext | None = None,
    client_tls: ssl.SSLContext | None = None,
) -> AsyncGenerator[Gate]:
    """Serve a gateway whose calls all go to an upstream that does as *script* says."""
    async with AsyncExitStack() as stack:
        upstream, origin = await stack.enter_async_context(open_scripted(script, server_tls))
        listener = stack.enter_context(create_server(("127.0.0.1", 0), backlog=2048))
        upstreams = await stack.enter_async_context(open_upstreams(client_tls, reach))
        gate = Gate(listener.getsockname()[1], Always(origin), upstream)
        gateway = Gateway(gate.policy, upstreams, [AUTHORITY], places_of_all(), bounds)
        tasks = await stack.enter_async_context(anyio.create_task_group())

        async def serve() -> None:
            await serve_gateway(listener, gateway)

        tasks.start_soon(gate.serve, serve)
        try:
            yield gate
        finally:
            tasks.cancel_scope.cancel()


def post(body: bytes = b"{}", head: str = "", target: str = "/v1/messages") -> bytes:
    """Return a request; *head* are more lines of its head, each with its end."""
    length = f"Content-Length: {len(body)}\r\n"
    return f"POST {target} HTTP/1.1\r\nHost: {AUTHORITY}\r\n{length}{head}\r\n".encode() + body


LAST = "Connection: close\r\n"


def status(answer: bytes) -> int:
    """Return the status of *answer*."""
    assert answer.startswith(b"HTTP/1.1 "), answer
    return int(answer.split()[1])


def parsed(answer: bytes) -> tuple[int, dict[str, str], bytes, bool]:
    """Return status, headers and body of *answer*, and whether it is whole."""
    http = h11.Connection(h11.CLIENT)
    http.send(h11.Request(method="GET", target="/", headers=[("Host", "x")]))
    http.send(h11.EndOfMessage())
    http.receive_data(answer)
    if not answer:
        return 0, {}, b"", False
    code, headers, body = 0, dict[str, str](), b""
    while True:
        match http.next_event():
            case h11.Response() as response:
                code = response.status_code
                headers = {bytes(n).decode(): bytes(v).decode() for n, v in response.headers}
            case h11.Data() as data:
                body += data.data
            case h11.EndOfMessage():
                return code, headers, body, True
            case _:
                return code, headers, body, False


def certificates(folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return the contexts of a server named localhost and of a client that trusts it."""
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    making = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    naming = ["-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext"]
    files = ["subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*making, *naming, *files], check=True, capture_output=True)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate, key)
    return server, ssl.create_default_context(cafile=str(certificate))
