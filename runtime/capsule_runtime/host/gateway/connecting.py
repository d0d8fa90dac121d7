"""Connections to upstreams, for the pool: TCP and TLS on asyncio and trio alike.

The pool has its own, which open a scope for each read; a stream of a model is thousands of them, so
here who reads has the deadline. And where TLS ends without its farewell, an answer is cut.
"""

from __future__ import annotations

import select
import ssl
from collections.abc import Generator, Iterable
from contextlib import contextmanager

import anyio
import httpcore2
from anyio.abc import ByteStream, SocketAttribute
from anyio.streams.tls import TLSStream

_BROKEN = (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError)


class Connection(httpcore2.AsyncNetworkStream):
    """One connection to an upstream."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        # Made once: the pool asks each idle connection at each request.
        self._socket = stream.extra(SocketAttribute.raw_socket)
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Return what has come; nothing at the end. *timeout* is the reader's to keep."""
        try:
            return await self._stream.receive(max_bytes)
        except anyio.EndOfStream:
            return b""
        except _BROKEN as exc:
            raise httpcore2.ReadError from exc

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Send *buffer*, as fast as the upstream takes it."""
        if not buffer:
            return
        try:
            with anyio.fail_after(timeout):
                await self._stream.send(buffer)
        except TimeoutError as exc:
            raise httpcore2.WriteTimeout from exc
        except _BROKEN as exc:
            raise httpcore2.WriteError from exc

    async def aclose(self) -> None:
        """Close at once: whoever closes has no more to say, and no time for farewells."""
        await anyio.aclose_forcefully(self._stream)

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> Connection:
        """Return the connection with TLS on it, once the certificate has been found right."""
        try:
            with _connecting(), anyio.fail_after(timeout):
                return Connection(
                    await TLSStream.wrap(
                        self._stream, hostname=server_hostname, ssl_context=ssl_context
                    )
                )
        except BaseException:
            await anyio.aclose_forcefully(self._stream)
            raise

    def get_extra_info(self, info: str) -> object:
        """Return whether something can be read; the pool wants to know nothing else of ours."""
        if info != "is_readable":
            return None
        return self._socket.fileno() < 0 or bool(self._poll.poll(0))


class Dialler(httpcore2.AsyncNetworkBackend):
    """How the pool gets its connections."""

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> Connection:
        """Return a connection to *host*."""
        with _connecting(), anyio.fail_after(timeout):
            return Connection(await anyio.connect_tcp(host, port, local_host=local_address))

    async def sleep(self, seconds: float) -> None:
        """Wait, before the pool tries again."""
        await anyio.sleep(seconds)


@contextmanager
def _connecting() -> Generator[None]:
    try:
        yield
    except TimeoutError as exc:
        raise httpcore2.ConnectTimeout from exc
    except (*_BROKEN, anyio.EndOfStream) as exc:
        raise httpcore2.ConnectError from exc
