"""Which addresses may be dialled: nothing but public ones, and private ones that the caller listed."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capsule_runtime.core.addresses import Kind, kind_of, parse_address, sift


def nothing_is_own(address: str) -> bool:
    return False


def dialable(*addresses: str, listed: tuple[str, ...] = ()) -> tuple[str, ...]:
    return sift(addresses, listed=listed, is_own=nothing_is_own).dialable


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("1.1.1.1", Kind.PUBLIC),
        ("172.15.255.255", Kind.PUBLIC),
        ("172.32.0.0", Kind.PUBLIC),
        ("100.63.255.255", Kind.PUBLIC),
        ("2606:4700::1111", Kind.PUBLIC),
        ("127.0.0.1", Kind.LOOPBACK),
        ("127.255.255.254", Kind.LOOPBACK),
        ("::1", Kind.LOOPBACK),
        ("0.0.0.0", Kind.UNSPECIFIED),
        ("0.1.2.3", Kind.UNSPECIFIED),
        ("::", Kind.UNSPECIFIED),
        ("169.254.0.1", Kind.LINK_LOCAL),
        ("fe80::1", Kind.LINK_LOCAL),
        ("febf::1", Kind.LINK_LOCAL),
        ("fec0::1", Kind.LINK_LOCAL),
        ("224.0.0.251", Kind.MULTICAST),
        ("ff02::1", Kind.MULTICAST),
        ("10.0.0.1", Kind.PRIVATE),
        ("172.16.0.1", Kind.PRIVATE),
        ("192.168.1.1", Kind.PRIVATE),
        ("fc00::1", Kind.PRIVATE),
        ("fdff::1", Kind.PRIVATE),
        ("100.64.0.1", Kind.SHARED),
        ("169.254.169.254", Kind.METADATA),
        ("169.254.170.2", Kind.METADATA),
        ("100.100.100.200", Kind.METADATA),
        ("168.63.129.16", Kind.METADATA),
        ("192.0.0.192", Kind.METADATA),
        ("fd00:ec2::254", Kind.METADATA),
        ("fd20:ce::254", Kind.METADATA),
        ("::ffff:1.1.1.1", Kind.CARRIES_IPV4),
        ("::ffff:0:1.1.1.1", Kind.CARRIES_IPV4),
        ("::1.1.1.1", Kind.CARRIES_IPV4),
        ("64:ff9b::1.1.1.1", Kind.CARRIES_IPV4),
        ("64:ff9b:1::7f00:1", Kind.CARRIES_IPV4),
        ("2002:7f00:1::", Kind.CARRIES_IPV4),
        ("2001::1", Kind.CARRIES_IPV4),
        ("2606:4700::5efe:7f00:1", Kind.CARRIES_IPV4),
        ("2606:4700::200:5efe:7f00:1", Kind.CARRIES_IPV4),
        ("192.0.2.1", Kind.RESERVED),
        ("198.51.100.1", Kind.RESERVED),
        ("203.0.113.1", Kind.RESERVED),
        ("198.18.0.1", Kind.RESERVED),
        ("192.0.0.1", Kind.RESERVED),
        ("240.0.0.1", Kind.RESERVED),
        ("255.255.255.255", Kind.RESERVED),
        ("2001:db8::1", Kind.RESERVED),
        ("2001:20::1", Kind.RESERVED),
        ("3fff::1", Kind.RESERVED),
        ("100::1", Kind.RESERVED),
        ("4000::1", Kind.RESERVED),
    ],
)
def test_what_an_address_is_for(address: str, kind: Kind) -> None:
    assert kind_of(ip_address(address)) is kind


@given(st.ip_addresses(v=4))
def test_python_too_calls_public_what_we_dial(address: IPv4Address) -> None:
    assert address.is_global or kind_of(address) is not Kind.PUBLIC


@given(st.ip_addresses(v=6))
def test_python_too_calls_public_what_we_dial_by_ipv6(address: IPv6Address) -> None:
    assert address.is_global or kind_of(address) is not Kind.PUBLIC


@given(st.ip_addresses(v=4))
def test_no_form_of_an_ipv4_address_in_an_ipv6_address_is_dialled(address: IPv4Address) -> None:
    inside = int(address)
    for prefix in ("::", "::ffff:0:0", "::ffff:0:0:0", "64:ff9b::", "64:ff9b:1::"):
        assert dialable(str(IPv6Address(int(IPv6Address(prefix)) + inside))) == ()
    assert dialable(str(IPv6Address((0x2002 << 112) + (inside << 80)))) == ()


@given(st.ip_addresses())
def test_a_list_opens_the_caller_s_own_network_and_nothing_else(
    address: IPv4Address | IPv6Address,
) -> None:
    kind = kind_of(address)
    opened = dialable(str(address), listed=(str(address),))

    assert opened == ((str(address),) if kind in (Kind.PUBLIC, Kind.PRIVATE) else ())


@given(st.lists(st.ip_addresses().map(str)), st.sets(st.ip_addresses().map(str)))
def test_addresses_are_parted_without_loss_in_their_order(
    addresses: list[str], own: set[str]
) -> None:
    sifted = sift(addresses, listed=(), is_own=own.__contains__)

    assert not own & set(sifted.dialable)
    assert sorted([*sifted.dialable, *(it for it, _ in sifted.refused)]) == sorted(set(addresses))
    assert list(sifted.dialable) == [it for it in dict.fromkeys(addresses) if it in sifted.dialable]


def test_an_address_of_this_machine_is_not_dialled() -> None:
    sifted = sift(["1.1.1.1", "10.0.0.1"], listed=["10.0.0.1"], is_own=lambda _: True)

    assert sifted.dialable == ()
    assert [kind for _, kind in sifted.refused] == [Kind.OWN, Kind.OWN]


@pytest.mark.parametrize("text", ["", "a", "1.1.1", "fe80::1%eth0", "1.1.1.1%a", "01.1.1.1", "1"])
def test_what_is_no_address_is_not_dialled(text: str) -> None:
    assert parse_address(text) is None
    assert dialable(text) == ()
