"""Places in the network have one form, and cover what they cover and no more."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capsule_runtime.core.destinations import (
    Destination,
    covers_destination,
    covers_name,
    parse_destination,
    parse_endpoint,
    parse_host,
    parse_upstream,
)
from capsule_runtime.errors import UsageError

NAMES = st.from_regex(r"\A[a-z0-9_]{1,8}(\.[a-z]{1,8}){1,3}\Z")
ADDRESSES = st.ip_addresses().map(lambda it: f"[{it}]" if isinstance(it, IPv6Address) else str(it))
PORTS = st.integers(1, 65535)
PLACES = st.builds(
    Destination,
    st.one_of(NAMES, NAMES.map("*.{}".format), st.ip_addresses().map(str)),
    PORTS,
    st.booleans(),
)


@given(PLACES)
def test_the_words_for_a_place_name_that_place(place: Destination) -> None:
    assert parse_destination(str(place)) == place


@given(NAMES, PORTS)
def test_case_and_a_trailing_dot_name_no_other_place(name: str, port: int) -> None:
    assert parse_destination(f"{name.upper()}.:{port}") == Destination(name, port)


@given(st.text(max_size=40))
def test_any_text_is_a_place_or_refused(text: str) -> None:
    try:
        place = parse_destination(text)
    except ValueError:
        return
    assert parse_destination(str(place)) == place


@given(st.text(alphabet="a.*:[]@%/0x1 \r\n\x00é", max_size=12))
def test_a_host_is_of_few_characters(text: str) -> None:
    try:
        host = parse_host(text)
    except ValueError:
        return
    assert set(host) <= set("a.0x1:")


@pytest.mark.parametrize("text", ["a", "a:", ":1", "[::1]", "a:1:2", "a@b:1", "*.a.org:1", "a/b:1"])
def test_one_place_has_a_port_and_no_star(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_endpoint(text)


@given(st.ip_addresses(v=4))
def test_an_address_is_a_literal_in_four_numbers_only(address: IPv4Address) -> None:
    assert parse_destination(str(address)).is_literal
    for other in (str(int(address)), hex(int(address)), f"0{address}", f"{address}."[:-3]):
        try:
            place = parse_destination(other)
        except ValueError:
            continue
        assert place.host == other


@given(PLACES, PLACES)
def test_words_cover_what_their_places_cover(grant: Destination, ask: Destination) -> None:
    same_door = (grant.port, grant.plain) == (ask.port, ask.plain)

    assert covers_destination(str(grant), str(ask)) == (
        same_door and covers_name(grant.host, ask.host)
    )


@pytest.mark.parametrize(
    ("grant", "name", "is_covered"),
    [
        ("*.a.org", "b.a.org", True),
        ("*.a.org", "c.b.a.org", True),
        ("*.a.org", "a.org", False),
        ("*.a.org", "ba.org", False),
        ("*.a.org", ".a.org", False),
        ("*.a.org", "a.org.b", False),
        ("a.org", "b.a.org", False),
        ("a.org", "a.org", True),
    ],
)
def test_a_star_stands_for_names_beneath(grant: str, name: str, is_covered: bool) -> None:
    assert covers_name(grant, name) is is_covered


@pytest.mark.parametrize(
    ("text", "upstream"),
    [
        ("127.0.0.1:8080", Destination("127.0.0.1", 8080)),
        ("LocalHost:1", Destination("localhost", 1)),
        ("[::1]:65535", Destination("::1", 65535)),
    ],
)
def test_an_upstream_may_be_on_this_machine(text: str, upstream: Destination) -> None:
    assert parse_upstream(text) == upstream


@pytest.mark.parametrize("text", ["", "a", "a:0", "a:65536", "::1:80", "http://a:80", "a:80/v1"])
def test_what_is_no_upstream_is_refused_with_a_code(text: str) -> None:
    with pytest.raises(UsageError, match=r"no upstream") as caught:
        parse_upstream(text)

    assert caught.value.code == "E-USE-052"
    assert "HOST:PORT" in caught.value.hint
