"""What the broker does in place of a harness that has the host's network and files: nothing that
was not granted. Connections lead to named endpoints, to what listens in the run itself, and nowhere
else; nobody else reaches what listens there; modes, owners, times and
attributes change beneath the folders that the harness may write.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from capsule_runtime.core.notices import EINVAL, EPERM, Refused

EACCES, EAFNOSUPPORT, EADDRNOTAVAIL, ECONNREFUSED = 13, 97, 99, 111

_UNIX, _INET, _INET6 = 1, 2, 10
_FAMILY = struct.Struct("<H")
_IPV4 = struct.Struct(">2xH4s")
_IPV6 = struct.Struct(">2xH4x16s")
_HERE = ("0.0.0.0", "0:0:0:0:0:0:0:0", "0:0:0:0:0:0:0:1")
_IPV4_IN_IPV6 = bytes(10) + b"\xff\xff"


class Endpoint(NamedTuple):
    """An address as a harness sees it: `127.0.0.1`, or eight groups of an IPv6 one, and a port."""

    address: str
    port: int


@dataclass(frozen=True, slots=True)
class Located:
    """A file that was granted: a path *beneath* the folder *root*; b"" is the root itself."""

    root: str
    beneath: bytes


def read_endpoint(address: bytes) -> Endpoint:
    """Return where a harness wants to go.

    Raises:
        Refused: it is no address of TCP.
    """
    if len(address) < _FAMILY.size:
        raise Refused(EINVAL)
    (family,) = _FAMILY.unpack_from(address)
    if family == _INET and len(address) >= _IPV4.size:
        port, bits = _IPV4.unpack_from(address)
        return Endpoint(_dotted(bits), port)
    if family == _INET6 and len(address) >= _IPV6.size:
        port, bits = _IPV6.unpack_from(address)
        if bits.startswith(_IPV4_IN_IPV6):
            return Endpoint(_dotted(bits[12:]), port)
        return Endpoint(":".join(f"{group:x}" for group in struct.unpack(">8H", bits)), port)
    if family in (_INET, _INET6):
        raise Refused(EINVAL)
    raise Refused(EACCES if family in (0, _UNIX) else EAFNOSUPPORT)


def check_own(wanted: Endpoint) -> None:
    """Let a harness listen where only itself can reach it: on loopback, or where it does not say.

    Raises:
        Refused: it wants to listen at an address of the machine.
    """
    if not is_here(wanted):
        raise Refused(EADDRNOTAVAIL)


def check_endpoint(wanted: Endpoint, granted: Collection[Endpoint]) -> None:
    """Let a harness go only where it was granted.

    Raises:
        Refused: it was not. On the host itself nobody seems to listen; who asks there is looking
            for a service that may not be there.
    """
    if wanted not in granted:
        raise Refused(ECONNREFUSED if is_here(wanted) else EACCES)


def locate(path: bytes, base: bytes, roots: Iterable[str]) -> Located:
    """Return where beneath *roots* a harness in the folder *base* finds *path*.

    Nothing is resolved: whoever opens it sees to links and to `..`, and stays beneath the root.

    Raises:
        Refused: it is beneath none, as it is written.
    """
    whole = path if path.startswith(b"/") else base + b"/" + path
    names = [name for name in whole.split(b"/") if name not in (b"", b".")]
    for root in sorted(roots, key=len, reverse=True):
        above = [name for name in root.encode("utf-8", "surrogateescape").split(b"/") if name]
        if names[: len(above)] == above:
            return Located(root, b"/".join(names[len(above) :]))
    raise Refused(EPERM)


def named_descriptor(path: bytes) -> int | None:
    """Return the descriptor of its own that a harness means by *path*, if it means one.

    The C library itself writes such a path, to change the mode of what is no link.
    """
    folder, _, name = path.rpartition(b"/")
    if folder not in (b"/proc/self/fd", b"/proc/thread-self/fd", b"/dev/fd"):
        return None
    return int(name) if name.isdigit() and len(name) <= 9 else None


def _dotted(bits: bytes) -> str:
    return ".".join(map(str, bits))


def is_here(endpoint: Endpoint) -> bool:
    """Tell whether it is on the machine itself; a place that is not said is there, too."""
    return endpoint.address.startswith("127.") or endpoint.address in _HERE


def is_ipv6(address: bytes) -> bool:
    """Tell whether *address*, which was read, is one of IPv6."""
    return _FAMILY.unpack_from(address) == (_INET6,)
