"""Which addresses a run may reach through a door that checks names.

A name is under the rule of whoever owns it, and may lead anywhere: to this machine, to the network
that it is in, to the service that hands out a cloud machine's keys. What is not known to be public
is not dialled. Addresses that carry an IPv4 address are not looked into: they are refused as a kind.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import AddressValueError, IPv4Address, IPv4Network, IPv6Address, IPv6Network

Address = IPv4Address | IPv6Address


class Kind(StrEnum):
    """What an address is for."""

    PUBLIC = "public"
    PRIVATE = "private"
    """The caller's own network: reached where the caller lists the very address."""
    LOOPBACK = "loopback"
    UNSPECIFIED = "unspecified"
    LINK_LOCAL = "link-local"
    MULTICAST = "multicast"
    SHARED = "shared by a carrier"
    METADATA = "the metadata of a cloud"
    CARRIES_IPV4 = "an IPv4 address in another form"
    RESERVED = "reserved"
    OWN = "this machine's own"
    """Told by the machine, not by the address."""
    NONE = "no address"


_METADATA = frozenset(
    map(
        IPv4Address,
        (
            "169.254.169.254",
            "169.254.170.2",
            "169.254.170.23",
            "169.254.0.23",
            "100.100.100.200",
            "168.63.129.16",
            "192.0.0.192",
        ),
    )
) | frozenset(map(IPv6Address, ("fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254")))
"""Where clouds tell a machine who it is, and with which keys; one of them looks public."""

_V4 = tuple(
    (IPv4Network(network), kind)
    for network, kind in (
        ("0.0.0.0/8", Kind.UNSPECIFIED),
        ("10.0.0.0/8", Kind.PRIVATE),
        ("100.64.0.0/10", Kind.SHARED),
        ("127.0.0.0/8", Kind.LOOPBACK),
        ("169.254.0.0/16", Kind.LINK_LOCAL),
        ("172.16.0.0/12", Kind.PRIVATE),
        ("192.0.0.0/24", Kind.RESERVED),
        ("192.0.2.0/24", Kind.RESERVED),
        ("192.88.99.0/24", Kind.RESERVED),
        ("192.168.0.0/16", Kind.PRIVATE),
        ("198.18.0.0/15", Kind.RESERVED),
        ("198.51.100.0/24", Kind.RESERVED),
        ("203.0.113.0/24", Kind.RESERVED),
        ("224.0.0.0/4", Kind.MULTICAST),
        ("240.0.0.0/4", Kind.RESERVED),
    )
)
_V6 = tuple(
    (IPv6Network(network), kind)
    for network, kind in (
        ("::/128", Kind.UNSPECIFIED),
        ("::1/128", Kind.LOOPBACK),
        ("::/96", Kind.CARRIES_IPV4),
        ("::ffff:0:0/96", Kind.CARRIES_IPV4),
        ("::ffff:0:0:0/96", Kind.CARRIES_IPV4),
        ("64:ff9b::/96", Kind.CARRIES_IPV4),
        ("64:ff9b:1::/48", Kind.CARRIES_IPV4),
        ("2001::/32", Kind.CARRIES_IPV4),
        ("2002::/16", Kind.CARRIES_IPV4),
        ("2001::/23", Kind.RESERVED),
        ("2001:db8::/32", Kind.RESERVED),
        ("3fff::/20", Kind.RESERVED),
        ("fc00::/7", Kind.PRIVATE),
        ("fe80::/10", Kind.LINK_LOCAL),
        ("fec0::/10", Kind.LINK_LOCAL),
        ("ff00::/8", Kind.MULTICAST),
    )
)
_GLOBAL_V6 = IPv6Network("2000::/3")
"""All that was ever handed out for the public."""
_ISATAP = (0x00005EFE, 0x02005EFE)
"""Third quarter of an IPv6 address that has an IPv4 address as its last."""


def parse_address(text: str) -> Address | None:
    """Return the address that *text* is; None if it is none, or one with a zone."""
    try:
        return IPv6Address(text) if ":" in text and "%" not in text else IPv4Address(text)
    except AddressValueError:
        return None


def kind_of(address: Address) -> Kind:
    """Return what *address* is for, as far as that can be told from itself."""
    if address in _METADATA:
        return Kind.METADATA
    if isinstance(address, IPv4Address):
        return next((kind for network, kind in _V4 if address in network), Kind.PUBLIC)
    for network, kind in _V6:
        if address in network:
            return kind
    if address not in _GLOBAL_V6:
        return Kind.RESERVED
    carries = (int(address) >> 32) & 0xFFFFFFFF in _ISATAP
    return Kind.CARRIES_IPV4 if carries else Kind.PUBLIC


def why_never_granted(address: str) -> str | None:
    """Say why no grant opens *address*, which is written right; None if one may."""
    found = parse_address(address)
    kind = kind_of(found) if found else Kind.NONE
    if kind in (Kind.PUBLIC, Kind.PRIVATE):
        return None
    if kind is Kind.CARRIES_IPV4:
        return "an IPv4 address is written as four numbers, and in no other form"
    return f"no capsule reaches that address: it is {kind}"


@dataclass(frozen=True, slots=True)
class Sifted:
    """Addresses of one name: those that may be dialled, and what the others are."""

    dialable: tuple[str, ...]
    refused: tuple[tuple[str, Kind], ...]


def sift(
    addresses: Iterable[str], *, listed: Collection[str], is_own: Callable[[str], bool]
) -> Sifted:
    """Part *addresses*, in their order, into those that may be dialled and the others.

    *listed* are those that the caller granted as they stand; *is_own* asks the machine.
    """
    dialable, refused = list[str](), list[tuple[str, Kind]]()
    for text in dict.fromkeys(addresses):
        address = parse_address(text)
        kind = kind_of(address) if address else Kind.NONE
        one_form = str(address)
        if kind is Kind.PUBLIC or (kind is Kind.PRIVATE and one_form in listed):
            kind = Kind.OWN if is_own(one_form) else Kind.PUBLIC
        if kind is Kind.PUBLIC:
            dialable.append(one_form)
        else:
            refused.append((text, kind))
    return Sifted(tuple(dialable), tuple(refused))
