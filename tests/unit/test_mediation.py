"""What a broker does for a harness, and what it does not."""

from __future__ import annotations

import errno
import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capsule_runtime.core.mediation import (
    Endpoint,
    Located,
    check_endpoint,
    check_own,
    is_ipv6,
    locate,
    named_descriptor,
    read_endpoint,
)
from capsule_runtime.core.notices import Refused

ROOTS = ("/data/work", "/data/home", "/data/work/deep")
GATEWAY = Endpoint("127.0.0.1", 8080)


def ipv4(address: str, port: int, rest: bytes = bytes(8)) -> bytes:
    return struct.pack("=H", 2) + struct.pack(">H", port) + socket.inet_aton(address) + rest


def ipv6(address: str, port: int) -> bytes:
    packed = socket.inet_pton(socket.AF_INET6, address)
    return struct.pack("=H", 10) + struct.pack(">HI", port, 0) + packed + bytes(4)


@pytest.mark.parametrize(
    ("address", "endpoint"),
    [
        (ipv4("127.0.0.1", 8080), GATEWAY),
        (ipv4("127.0.0.1", 8080, b"")[:8], GATEWAY),
        (ipv4("169.254.169.254", 80), Endpoint("169.254.169.254", 80)),
        (ipv6("::ffff:127.0.0.1", 8080), GATEWAY),
        (ipv6("::1", 8080), Endpoint("0:0:0:0:0:0:0:1", 8080)),
        (ipv6("2001:db8::2", 65535), Endpoint("2001:db8:0:0:0:0:0:2", 65535)),
    ],
)
def test_addresses_of_tcp(address: bytes, endpoint: Endpoint) -> None:
    assert read_endpoint(address) == endpoint


@pytest.mark.parametrize(
    ("address", "error"),
    [
        (b"", errno.EINVAL),
        (b"\2", errno.EINVAL),
        (ipv4("127.0.0.1", 80)[:7], errno.EINVAL),
        (ipv6("::1", 80)[:23], errno.EINVAL),
        (struct.pack("=H", 1) + b"/run/docker.sock\0", errno.EACCES),
        (struct.pack("=H", 1) + b"\0abstract", errno.EACCES),
        (struct.pack("=H", 0) + bytes(14), errno.EACCES),
        (struct.pack("=H", 16) + bytes(10), errno.EAFNOSUPPORT),
        (struct.pack("=H", 40) + bytes(14), errno.EAFNOSUPPORT),
    ],
)
def test_what_is_no_address_of_tcp(address: bytes, error: int) -> None:
    with pytest.raises(Refused) as refused:
        read_endpoint(address)

    assert refused.value.number == error


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        (GATEWAY, 0),
        (Endpoint("127.0.0.1", 8081), errno.ECONNREFUSED),
        (Endpoint("127.0.0.2", 8080), errno.ECONNREFUSED),
        (Endpoint("0:0:0:0:0:0:0:1", 8080), errno.ECONNREFUSED),
        (Endpoint("0.0.0.0", 8080), errno.ECONNREFUSED),
        (Endpoint("0:0:0:0:0:0:0:0", 8080), errno.ECONNREFUSED),
        (Endpoint("10.0.0.1", 8080), errno.EACCES),
        (Endpoint("169.254.169.254", 80), errno.EACCES),
    ],
)
def test_only_what_was_granted_is_reached(wanted: Endpoint, error: int) -> None:
    try:
        check_endpoint(wanted, {GATEWAY})
    except Refused as refused:
        assert refused.number == error
    else:
        assert error == 0


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "127.9.9.9", "0.0.0.0", "0:0:0:0:0:0:0:0", "0:0:0:0:0:0:0:1"]
)
def test_a_run_may_listen_where_only_itself_is(address: str) -> None:
    check_own(Endpoint(address, 8080))


@pytest.mark.parametrize("address", ["10.0.0.1", "192.168.1.7", "2001:db8:0:0:0:0:0:1"])
def test_a_run_may_listen_at_no_address_of_the_machine(address: str) -> None:
    with pytest.raises(Refused) as refused:
        check_own(Endpoint(address, 8080))

    assert refused.value.number == errno.EADDRNOTAVAIL


def test_the_family_of_an_address_is_told() -> None:
    assert is_ipv6(struct.pack("=HH4x16x4x", 10, 0))
    assert not is_ipv6(struct.pack("=HH4x8x", 2, 0))


@pytest.mark.parametrize(
    ("path", "base", "located"),
    [
        (b"a", b"/data/work", Located("/data/work", b"a")),
        (b".", b"/data/work", Located("/data/work", b"")),
        (b"./a//b/./c", b"/data/work/x", Located("/data/work", b"x/a/b/c")),
        (b"../a", b"/data/work/x", Located("/data/work", b"x/../a")),
        (b"/data/work/deep/a", b"", Located("/data/work/deep", b"a")),
        (b"//data/./home/a", b"/elsewhere", Located("/data/home", b"a")),
        (b"work/a", b"/data", Located("/data/work", b"a")),
        (b"/data/work/../../etc/shadow", b"", Located("/data/work", b"../../etc/shadow")),
        (b"\xff", b"/data/home", Located("/data/home", b"\xff")),
    ],
)
def test_what_lies_beneath_a_root(path: bytes, base: bytes, located: Located) -> None:
    """Whoever opens it stays beneath the root; so `..` is left as it is."""
    assert locate(path, base, ROOTS) == located


@pytest.mark.parametrize(
    ("path", "base"),
    [
        (b"/etc/passwd", b"/data/work"),
        (b"/data/workshop/a", b""),
        (b"a", b"/data"),
        (b"/", b"/data/work"),
        (b"/../data/work/a", b""),
        (b"a", b"pipe:[123]"),
    ],
)
def test_what_lies_beneath_none(path: bytes, base: bytes) -> None:
    with pytest.raises(Refused) as refused:
        locate(path, base, ROOTS)

    assert refused.value.number == errno.EPERM


@pytest.mark.parametrize(
    ("path", "descriptor"),
    [
        (b"/proc/self/fd/7", 7),
        (b"/proc/thread-self/fd/12", 12),
        (b"/dev/fd/0", 0),
        (b"/proc/1/fd/7", None),
        (b"/proc/self/fd/", None),
        (b"/proc/self/fd/7/a", None),
        (b"/proc/self/fd/-1", None),
        (b"/proc/self/fd/9999999999", None),
        (b"fd/7", None),
    ],
)
def test_a_path_that_means_a_descriptor(path: bytes, descriptor: int | None) -> None:
    assert named_descriptor(path) == descriptor


@given(st.binary(max_size=200))
def test_no_bytes_are_an_address_but_those_of_one(address: bytes) -> None:
    try:
        endpoint = read_endpoint(address)
    except Refused as refused:
        assert 0 < refused.number < 4096
    else:
        assert address[0] in (2, 10) and 0 <= endpoint.port < 65536
