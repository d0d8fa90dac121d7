"""A listener on loopback lets in whom its holder brought, and nobody else."""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Iterator

import pytest

from capsule_runtime.host.own_listener import OwnListener

RESET_ON_CLOSE = struct.pack("ii", 1, 0)


@pytest.fixture
def listener() -> Iterator[OwnListener]:
    with OwnListener() as listener:
        yield listener


def test_whoever_was_brought_comes_in(listener: OwnListener) -> None:
    with listener.dial() as caller:
        caller.sendall(b"hello")
        visitor, address = listener.accept()
        with visitor:
            visitor.setblocking(True)

            assert visitor.recv(100) == b"hello"
            assert address == caller.getsockname()


def test_a_stranger_is_turned_away(listener: OwnListener) -> None:
    with socket.create_connection(listener.getsockname()) as stranger:
        with listener.dial() as caller:
            visitor, address = listener.accept()
            visitor.close()

            assert address == caller.getsockname()
        with pytest.raises(BlockingIOError):
            listener.accept()
        assert stranger.recv(100) == b""


def test_nobody_comes_in_from_where_somebody_came_before(listener: OwnListener) -> None:
    caller = listener.dial()
    place = caller.getsockname()
    caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
    caller.close()
    with pytest.raises(BlockingIOError):
        while True:
            listener.accept()[0].close()

    with socket.socket() as stranger:
        stranger.bind(place)
        stranger.connect(listener.getsockname())

        with pytest.raises(BlockingIOError):
            listener.accept()


def test_who_finds_no_room_is_refused(listener: OwnListener) -> None:
    listener.listen(0)
    callers = [listener.dial()]

    with pytest.raises(ConnectionRefusedError) as refused:
        callers += [listener.dial() for _ in range(3)]

    for caller in callers:
        caller.close()
    assert refused.value.errno == errno.ECONNREFUSED
