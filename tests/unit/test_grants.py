"""What is asked for, what is granted, and what is missing: by rule, and on random paths and hosts."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capsule_runtime.core.grants import (
    TIERS,
    Capabilities,
    Grants,
    Item,
    Tier,
    covers,
    effective,
    floor_of,
    granted_by,
    grants_of,
    is_beneath,
    items_of,
    lowers_floor,
    missing,
    overlap,
)

NAMES = st.sampled_from(["a", "ab", "b", "a.b", " "])
PATHS = st.lists(NAMES, max_size=4).map(lambda names: "/" + "/".join(names))
LABELS = st.sampled_from(["a", "ab", "org", "x"])
STARS, PORTS = st.sampled_from(["", "*."]), st.sampled_from(["", ":8443"])
DOMAINS = st.lists(LABELS, min_size=2, max_size=4).map(".".join)
HOSTS = st.tuples(STARS, DOMAINS, PORTS).map("".join)
VARIABLES = st.sampled_from(["A", "B", "AB"])
ITEMS = st.one_of(
    st.builds(Item, st.sampled_from(["read", "write"]), PATHS),
    st.builds(Item, st.just("host"), HOSTS),
    st.builds(Item, st.sampled_from(["env", "secret"]), VARIABLES),
    st.builds(Item, st.just("provider"), LABELS),
    st.builds(Item, st.just("tier"), st.sampled_from(TIERS)),
)
LISTS = st.lists(ITEMS, max_size=8)
FLOORS = st.lists(st.sampled_from(TIERS), max_size=3)
FEW: list[Item] = [Item("read", "/a"), Item("host", "a.org"), Item("env", "A")]


@given(LISTS)
def test_what_nobody_grants_is_missing(asked: list[Item]) -> None:
    assert missing(asked, []) == tuple(asked)
    assert effective(asked, []) == Grants()


@given(LISTS)
def test_what_is_granted_as_it_was_asked_for_is_not_missing(asked: list[Item]) -> None:
    assert missing(asked, asked) == ()


@given(LISTS, LISTS)
def test_a_run_gets_nothing_that_it_did_not_ask_for(asked: list[Item], granted: list[Item]) -> None:
    assert set(items_of(effective(asked, granted))) <= set(asked)


@given(LISTS, LISTS)
def test_all_that_is_asked_for_is_either_had_or_missing(
    asked: list[Item], granted: list[Item]
) -> None:
    had = set(items_of(effective(asked, granted)))
    lacking = set(missing(asked, granted))

    assert had & lacking == set()
    assert had | lacking == {item for item in asked if item.kind != "tier" or item in lacking}


@given(LISTS, LISTS, LISTS)
def test_more_grants_never_take_anything_away(
    asked: list[Item], granted: list[Item], more: list[Item]
) -> None:
    assert set(missing(asked, granted + more)) <= set(missing(asked, granted))


@given(LISTS, LISTS, LISTS)
def test_the_first_source_that_grants_is_named(
    asked: list[Item], near: list[Item], far: list[Item]
) -> None:
    found = granted_by(asked, {"near": near, "far": far})

    for item, source in found.items():
        by_near, by_far = (not missing([item], granted) for granted in (near, far))
        assert source == ("near" if by_near else "far" if by_far else None)


@given(ITEMS, ITEMS, ITEMS)
def test_what_covers_a_grant_covers_what_that_covers(a: Item, b: Item, c: Item) -> None:
    if covers(a, b) and covers(b, c):
        assert covers(a, c)


@given(PATHS, PATHS)
def test_a_path_covers_what_lies_beneath_by_components(path: str, folder: str) -> None:
    assert is_beneath(path, folder) == PurePosixPath(path).is_relative_to(folder)


@given(PATHS, PATHS)
def test_paths_overlap_when_one_lies_in_the_other(read: str, write: str) -> None:
    apart = not (is_beneath(read, write) or is_beneath(write, read))

    assert (overlap(Grants(read=(read,), write=(write,))) is None) == apart


@given(LISTS)
def test_grants_and_their_items_are_the_same_thing(items: list[Item]) -> None:
    named = [item for item in items if item.kind != "tier"]

    assert set(items_of(grants_of(items))) == set(named)


@pytest.mark.parametrize(
    ("grant", "ask", "is_covered"),
    [
        ("read=/a", "read=/a/b", True),
        ("read=/a", "read=/ab", False),
        ("read=/a/b", "read=/a", False),
        ("read=/", "read=/a", True),
        ("write=/a", "read=/a/b", True),
        ("read=/a", "write=/a", False),
        ("host=a.org", "host=a.org", True),
        ("host=a.org", "host=b.a.org", False),
        ("host=*.a.org", "host=b.a.org", True),
        ("host=*.a.org", "host=c.b.a.org", True),
        ("host=*.a.org", "host=*.b.a.org", True),
        ("host=*.a.org", "host=*.a.org", True),
        ("host=*.a.org", "host=a.org", False),
        ("host=*.a.org", "host=ba.org", False),
        ("host=b.a.org", "host=*.a.org", False),
        ("host=a.org", "host=a.org:8443", False),
        ("host=a.org:8443", "host=a.org", False),
        ("host=*.a.org:8443", "host=b.a.org:8443", True),
        ("host=http://*.a.org", "host=http://b.a.org", True),
        ("host=a.org", "host=http://a.org", False),
        ("host=http://a.org", "host=a.org", False),
        ("host=http://a.org", "host=a.org:80", False),
        ("host=[fd00::1]:80", "host=[fd00::1]:80", True),
        ("host=[fd00::1]", "host=[fd00::1]:80", False),
        ("env=A", "env=A", True),
        ("env=A", "env=AB", False),
        ("env=A", "secret=A", False),
        ("secret=A", "env=A", False),
        ("provider=a", "provider=a", True),
        ("provider=a", "provider=ab", False),
        ("env=a", "provider=a", False),
        ("tier=advisory", "tier=advisory", True),
        ("tier=advisory", "tier=scoped", True),
        ("tier=scoped", "tier=advisory", False),
        ("env=advisory", "tier=advisory", False),
    ],
)
def test_what_a_grant_covers(grant: str, ask: str, is_covered: bool) -> None:
    assert covers(Item(*grant.split("=")), Item(*ask.split("="))) is is_covered


# Floors of containment.


@given(FLOORS, st.sampled_from([None, *TIERS]))
def test_no_manifest_lowers_the_floor_of_a_caller(floors: list[Tier], wanted: Tier | None) -> None:
    if floors:
        strictest = min(floors, key=TIERS.index)
        assert TIERS.index(floor_of(wanted, floors)) <= TIERS.index(strictest)
        assert not lowers_floor(wanted, floors)


@given(FLOORS, st.sampled_from([None, *TIERS]))
def test_the_strictest_of_all_that_was_said_is_the_floor(
    floors: list[Tier], wanted: Tier | None
) -> None:
    said = [tier for tier in (*floors, wanted) if tier is not None]

    assert floor_of(wanted, floors) == (min(said, key=TIERS.index) if said else "scoped")


@pytest.mark.parametrize(
    ("wanted", "floors", "is_an_ask"),
    [
        (None, [], False),
        ("sealed", [], False),
        ("scoped", [], False),
        ("advisory", [], True),
        ("advisory", ["advisory"], False),
        ("advisory", ["scoped"], False),
    ],
)
def test_a_tier_is_asked_for_where_it_is_lower_than_usual(
    wanted: Tier | None, floors: list[Tier], is_an_ask: bool
) -> None:
    assert lowers_floor(wanted, floors) is is_an_ask


def test_a_tier_is_one_of_the_items() -> None:
    asked = Capabilities(read=("/a", "/a"), hosts=("a.org",), env=("A",), containment="advisory")

    assert items_of(asked) == (*FEW, Item("tier", "advisory"))
    assert grants_of(items_of(asked)) == Grants(read=("/a",), hosts=("a.org",), env=("A",))


def test_items_are_written_as_they_are_granted() -> None:
    assert [str(item) for item in FEW] == ["read=/a", "host=a.org", "env=A"]
