"""The connections to upstreams, which all runs of one supervisor share."""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Generator
from contextlib import aclosing, asynccontextmanager, contextmanager
from typing import NamedTuple

import anyio
import httpcore2
from msgspec import Struct

from capsule_runtime.core.http_passing import headers_upstream, target_upstream
from capsule_runtime.core.relaying import Fault, Forward, Header, RequestHead
from capsule_runtime.host.gateway.connecting import Dialler

_PIECE_BYTES = 64 * 1024
_CLOSE_SECONDS = 5.0
_UNSENT = frozenset(("busy", "connect-timeout", "unreachable", "tls"))


class Reach(Struct, frozen=True):
    """How many connections there may be, and how long it may take to get and use one."""

    connections: int = 1024
    idle_connections: int = 64
    keep_seconds: float = 15
    """An idle connection is kept so long: shorter than upstreams keep it, so that none is reused
    that is being closed."""
    wait_seconds: float = 30
    """For a connection, while all are taken."""
    connect_seconds: float = 15
    send_seconds: float = 60
    """Until the upstream takes the next piece of a request."""


class Unserved(Exception):
    """Raised where the upstream did not do its part; what is said of it holds no key."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault

    @property
    def is_unsent(self) -> bool:
        """Whether there was no connection by which anything could have been sent."""
        return self.fault.code in _UNSENT


class Reply(NamedTuple):
    """What an upstream answers: the head, and then the pieces of the body as they come."""

    status: int
    headers: list[Header]
    pieces: AsyncIterator[bytes]


class Upstreams:
    """A pool of connections. Nothing is followed, retried or decoded."""

    def __init__(self, pool: httpcore2.AsyncConnectionPool, reach: Reach) -> None:
        self._pool = pool
        self._reach = reach

    @classmethod
    def open(cls, tls: ssl.SSLContext | None = None, reach: Reach | None = None) -> Upstreams:
        """Return upstreams that have to be closed; certificates are checked as *tls* says."""
        reach = reach or Reach()
        tls = tls or ssl.create_default_context()
        # Some Pythons let a connection that is cut pass for one that has ended.
        tls.options &= ~ssl.OP_IGNORE_UNEXPECTED_EOF
        pool = httpcore2.AsyncConnectionPool(
            tls,
            max_connections=reach.connections,
            max_keepalive_connections=reach.idle_connections,
            keepalive_expiry=reach.keep_seconds,
            network_backend=Dialler(),
        )
        return cls(pool, reach)

    async def close(self) -> None:
        """Close all connections, within a bound and whatever is cancelled meanwhile."""
        with anyio.CancelScope(shield=True), anyio.move_on_after(_CLOSE_SECONDS):
            await self._pool.aclose()

    @asynccontextmanager
    async def asked(self, forward: Forward, head: RequestHead) -> AsyncGenerator[Reply]:
        """Send *forward*, the call that came with *head*, and yield the reply once it begins.

        For that and for each piece the caller waits as long as it likes. Leave the block early and
        the upstream's connection is closed.

        Raises:
            Unserved: here, or between the pieces.
        """
        reach = self._reach
        patience = {
            "pool": reach.wait_seconds,
            "connect": reach.connect_seconds,
            "write": reach.send_seconds,
        }
        with _told():
            response = await self._pool.handle_async_request(_request(forward, head, patience))
        if not 200 <= response.status <= 599:
            await response.aclose()
            raise Unserved(Fault(502, "status", "the provider answered what is no answer"))
        try:
            async with aclosing(_pieces(response)) as pieces:
                headers = [(name.lower(), value) for name, value in response.headers]
                yield Reply(response.status, headers, pieces)
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(_CLOSE_SECONDS):
                await response.aclose()


def _request(forward: Forward, head: RequestHead, patience: dict[str, float]) -> httpcore2.Request:
    origin, body = forward.origin, forward.body
    headers = headers_upstream(head.headers, forward)
    if body or head.method not in ("GET", "HEAD"):
        headers.append((b"content-length", str(len(body)).encode()))
    url = httpcore2.URL(
        scheme=origin.scheme.encode(),
        host=origin.host.encode(),
        port=origin.port,
        target=target_upstream(forward).encode(),
    )
    return httpcore2.Request(
        head.method, url, headers=headers, content=_cut(body), extensions={"timeout": patience}
    )


async def _cut(body: bytes) -> AsyncIterator[bytes]:
    """Yield *body* in pieces: what the upstream has not taken is not copied."""
    for at in range(0, len(body), _PIECE_BYTES):
        yield body[at : at + _PIECE_BYTES]


async def _pieces(response: httpcore2.Response) -> AsyncGenerator[bytes]:
    with _told():
        async with aclosing(response.aiter_stream()) as pieces:
            async for piece in pieces:
                yield piece


@contextmanager
def _told() -> Generator[None]:
    """Say what went wrong in our own words: those of others may quote a header."""
    try:
        yield
    except httpcore2.PoolTimeout:
        fault = Fault(503, "busy", "all connections to providers are taken")
        raise Unserved(fault) from None
    except httpcore2.ConnectTimeout:
        raise Unserved(Fault(504, "connect-timeout", "the provider does not answer")) from None
    except httpcore2.TimeoutException:
        raise Unserved(Fault(504, "timeout", "the provider has become silent")) from None
    except httpcore2.ConnectError as exc:
        raise Unserved(_unreached(exc)) from None
    except (httpcore2.NetworkError, httpcore2.ProtocolError):
        fault = Fault(502, "broken", "the provider broke the connection off")
        raise Unserved(fault) from None


def _unreached(exc: BaseException) -> Fault:
    """Return why there is no connection; a wrong certificate is worth a word of its own."""
    cause: BaseException | None = exc
    while cause is not None:
        if isinstance(cause, ssl.SSLError):
            return Fault(502, "tls", "the provider's certificate is not trusted, or TLS failed")
        cause = cause.__cause__ or cause.__context__
    return Fault(502, "unreachable", "the provider cannot be reached")


@asynccontextmanager
async def open_upstreams(
    tls: ssl.SSLContext | None = None, reach: Reach | None = None
) -> AsyncGenerator[Upstreams]:
    """Yield the upstreams of a supervisor; certificates are checked as *tls* says."""
    upstreams = Upstreams.open(tls, reach)
    try:
        yield upstreams
    finally:
        await upstreams.close()
