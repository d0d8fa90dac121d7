"""The lines that changed: whatever is found makes the new text out of the old one, and in time."""

from __future__ import annotations

import random

import pytest

from capsule_runtime.core.line_diff import MOST_DIFFERENCES, Block, Patience, changed_blocks


def applied(old: list[bytes], new: list[bytes], blocks: list[Block]) -> list[bytes]:
    """Return what *blocks* make of *old*, with the lines that they take from *new*."""
    made: list[bytes] = []
    at = 0
    for a, b, c, d in blocks:
        assert at <= a <= b
        assert (a, c) != (b, d)
        made += old[at:a] + new[c:d]
        at = b
    return made + old[at:]


def text(seed: random.Random, most: int, letters: int) -> list[bytes]:
    return [b"%d\n" % seed.randrange(letters) for _ in range(seed.randrange(most))]


@pytest.mark.parametrize("seed", range(200))
def test_the_blocks_make_the_new_text(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(10):
        old, new = text(chance, 14, 3), text(chance, 14, 3)

        assert applied(old, new, changed_blocks(old, new, Patience())) == new


def test_the_shortest_script_is_found() -> None:
    old = [b"a", b"b", b"c", b"a", b"b", b"b", b"a"]
    new = [b"c", b"b", b"a", b"b", b"a", b"c"]
    blocks = changed_blocks(old, new, Patience())

    assert sum(b - a + d - c for a, b, c, d in blocks) == 5


def test_equal_texts_differ_nowhere() -> None:
    assert changed_blocks([b"a"], [b"a"], Patience()) == []
    assert changed_blocks([], [], Patience()) == []


def test_texts_that_differ_too_much_are_replaced_whole() -> None:
    old = [b"same"] + [b"a%d" % number for number in range(MOST_DIFFERENCES)] + [b"end"]
    new = [b"same"] + [b"b%d" % number for number in range(MOST_DIFFERENCES)] + [b"end"]
    blocks = changed_blocks(old, new, Patience())

    assert blocks == [(1, MOST_DIFFERENCES + 1, 1, MOST_DIFFERENCES + 1)]


def test_patience_is_for_all_texts_together() -> None:
    """A tree of files that differ everywhere must not keep anybody for minutes."""
    patience = Patience(100_000)
    old = [b"a%d" % number for number in range(1000)]
    new = [b"b%d" % number for number in range(1000)]
    for _ in range(50):
        assert applied(old, new, changed_blocks(old, new, patience)) == new

    assert patience.steps > -100_000
