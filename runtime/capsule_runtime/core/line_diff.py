"""Which lines changed between two texts, in bounded time.

Myers' greedy walk finds the shortest script; where the texts differ too much for that to be worth
the time, all between the common beginning and the common end is replaced, which is a script too.
"""

from __future__ import annotations

from collections.abc import Sequence

MOST_DIFFERENCES = 400
Block = tuple[int, int, int, int]
"""Lines *a:b* of the old text give way to lines *c:d* of the new one."""


class Patience:
    """How many steps may still be taken, for many texts together."""

    def __init__(self, steps: int = 4_000_000) -> None:
        self.steps = steps


def changed_blocks(old: Sequence[bytes], new: Sequence[bytes], patience: Patience) -> list[Block]:
    """Return the blocks in which *old* and *new* differ, in order."""
    start = 0
    most = min(len(old), len(new))
    while start < most and old[start] == new[start]:
        start += 1
    end = 0
    while end < most - start and old[-1 - end] == new[-1 - end]:
        end += 1
    a, b = old[start : len(old) - end], new[start : len(new) - end]
    if not a and not b:
        return []
    pairs = _common_pairs(a, b, patience) if a and b else []
    return _blocks([(x + start, y + start) for x, y in pairs], start, len(a), len(b))


def _blocks(pairs: list[tuple[int, int]], start: int, olds: int, news: int) -> list[Block]:
    """Return what lies between the *pairs* of lines that are the same."""
    blocks: list[Block] = []
    x, y = start, start
    for old, new in [*pairs, (start + olds, start + news)]:
        if old > x or new > y:
            blocks.append((x, old, y, new))
        x, y = old + 1, new + 1
    return blocks


def _common_pairs(
    a: Sequence[bytes], b: Sequence[bytes], patience: Patience
) -> list[tuple[int, int]]:
    """Return which lines of *a* stay as which lines of *b*; none when it takes too long."""
    ends, trail = {1: 0}, list[dict[int, int]]()
    for differences in range(min(len(a) + len(b), MOST_DIFFERENCES) + 1):
        trail.append(dict(ends))
        patience.steps -= 2 * differences + 1
        for k in range(-differences, differences + 1, 2):
            down = k == -differences or (
                k != differences and ends.get(k - 1, -1) < ends.get(k + 1, -1)
            )
            x = ends[k + 1] if down else ends[k - 1] + 1
            y = x - k
            began = x
            while x < len(a) and y < len(b) and a[x] == b[y]:
                x, y = x + 1, y + 1
            patience.steps -= x - began
            ends[k] = x
            if x >= len(a) and y >= len(b):
                return _walked_back(trail, len(a), len(b))
        if patience.steps <= 0:
            return []
    return []


def _walked_back(trail: list[dict[int, int]], x: int, y: int) -> list[tuple[int, int]]:
    pairs: list[tuple[int, int]] = []
    for differences in range(len(trail) - 1, -1, -1):
        ends, k = trail[differences], x - y
        down = k == -differences or (k != differences and ends.get(k - 1, -1) < ends.get(k + 1, -1))
        before = k + 1 if down else k - 1
        from_x = ends[before]
        from_y = from_x - before
        if differences == 0:
            from_x, from_y = 0, 0
        while x > from_x and y > from_y:
            x, y = x - 1, y - 1
            pairs.append((x, y))
        x, y = from_x, from_y
    return pairs[::-1]
