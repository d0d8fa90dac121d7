"""TCP sockets that never hold up the event loop, on asyncio and on trio alike.

Raw, because what serves a run must hold no more of its bytes than it was just given: a stream of an
event loop reads ahead.
"""

from __future__ import annotations

import errno
import os
import struct
from contextlib import suppress
from socket import (
    AF_INET,
    AF_INET6,
    AF_UNIX,
    IPPROTO_TCP,
    SHUT_WR,
    SO_ERROR,
    SO_KEEPALIVE,
    SO_LINGER,
    SOCK_STREAM,
    SOL_SOCKET,
    TCP_NODELAY,
    socket,
)

import anyio
import anyio.lowlevel

CHUNK_BYTES = 64 * 1024
"""As much is held of one direction of one connection."""
_FAREWELL_BYTES = 256 * 1024
_FAREWELL_SECONDS = 2.0
_NOT_NOW = {
    errno.ECONNABORTED,
    errno.EPROTO,
    errno.EPERM,
    errno.EMFILE,
    errno.ENFILE,
    errno.ENOBUFS,
    errno.ENOMEM,
}
"""The peer has gone, or this machine has no room for it: it waits until there is some."""
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


def accept(listener: socket) -> socket | None:
    """Return the connection that waits at *listener*, which must not block; None if none can be had.

    Raises:
        OSError: the listener is broken.
    """
    try:
        client, _ = listener.accept()
    except BlockingIOError:
        return None  # it left, or another one took it
    except OSError as exc:
        if exc.errno in _NOT_NOW:
            return None
        raise
    _tune(client)
    return client


async def connect(address: str, port: int) -> socket:
    """Return a connection to *address*, which is dialled as it stands.

    Raises:
        OSError: nobody answers there.
    """
    peer = socket(AF_INET6 if ":" in address else AF_INET, SOCK_STREAM)
    try:
        _tune(peer)
        error = peer.connect_ex((address, port))
        if error == errno.EINPROGRESS:
            await anyio.wait_writable(peer)
            error = peer.getsockopt(SOL_SOCKET, SO_ERROR)
        # On loopback a socket can get the very port that it dials, and then hears itself.
        if not error and peer.getsockname() == peer.getpeername():
            error = errno.ECONNREFUSED
        if error:
            raise OSError(error, os.strerror(error))
    except BaseException:
        peer.close()
        raise
    return peer


async def receive(source: socket, most: int = CHUNK_BYTES) -> bytes:
    """Return what *source* has, once it has anything; nothing at its end.

    Raises:
        OSError: the connection broke.
    """
    await anyio.lowlevel.checkpoint()  # who always has something must not keep others waiting
    while True:
        try:
            return source.recv(most)
        except BlockingIOError:
            await anyio.wait_readable(source)


async def send_all(sink: socket, data: bytes) -> None:
    """Send *data* as fast as *sink* takes it.

    Raises:
        OSError: the connection broke.
    """
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[sink.send(rest) :]
        except BlockingIOError:
            await anyio.wait_writable(sink)


def send_some(sink: socket, data: bytes) -> int:
    """Return how many bytes of *data* were sent, which are those that *sink* has room for.

    Raises:
        OSError: the connection broke.
    """
    try:
        return sink.send(data)
    except BlockingIOError:
        return 0


def end_sending(sink: socket) -> None:
    """Tell the peer that nothing more comes; it may go on sending."""
    with suppress(OSError):  # then it is gone, and hears of nothing
        sink.shutdown(SHUT_WR)


def reset_on_close(*peers: socket) -> None:
    """Have the peers see, once these sockets are closed, that their connection was cut."""
    for peer in peers:
        peer.setsockopt(SOL_SOCKET, SO_LINGER, _RESET_ON_CLOSE)


async def dismiss(client: socket, answer: bytes) -> None:
    """Send *answer*, and see to it that *client* can read it whatever it still sends."""
    with suppress(OSError), anyio.move_on_after(_FAREWELL_SECONDS):
        await send_all(client, answer)
        end_sending(client)
        # Unread bytes would turn the close into a reset, which takes the answer back.
        read = 0
        while read < _FAREWELL_BYTES and (data := await receive(client)):
            read += len(data)


def _tune(peer: socket) -> None:
    """Send at once, never block, and notice a peer that is gone."""
    peer.setblocking(False)
    if peer.family == AF_UNIX:
        return  # it knows no other way
    peer.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)
    peer.setsockopt(SOL_SOCKET, SO_KEEPALIVE, 1)
