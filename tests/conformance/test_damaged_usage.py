"""What recorded outputs of every driver say that was used, with a line twice, lost, or cut short.

A line that comes twice counts once, a lost one never counts for more than it was, and of one that can
be seen to be cut short nobody takes it that its call was free.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import UnionType

import pytest

from capsule_runtime import Note, Said, TurnEnd, TurnFailed, Usage
from capsule_runtime.core.usage import UsageFold
from capsule_runtime.driver import driver_names
from support.player import exit_of, new_driver

TRANSCRIPTS = Path(__file__).parent / "transcripts"
PLACES = 12
"""How many lines of a recording, at most, are damaged beside those that tell something."""
Lines = list[bytes]


def cases(driver: str) -> list[Path]:
    found = sorted((TRANSCRIPTS / driver).glob("*.jsonl"))
    return [path for path in found if not path.stem.endswith((".events", ".frames"))]


CASES = [path for name in driver_names() for path in cases(name)]
by_case = pytest.mark.parametrize("case", CASES, ids=lambda p: f"{p.parent.name}-{p.stem}")


@cache
def lines_of(case: Path) -> tuple[bytes, ...]:
    return tuple(case.read_bytes().splitlines(keepends=True))


@dataclass(frozen=True, slots=True)
class Account:
    """What is known to be used, and of how many calls it is not, or not all."""

    tokens: dict[str, int]
    calls: int
    incomplete: int
    blank: int

    def exceeds(self, other: Account) -> bool:
        """Tell whether more is known to be used than *other* says."""
        return any(count > other.tokens.get(name, 0) for name, count in self.tokens.items())

    def admits_more_than(self, other: Account) -> bool:
        """Tell whether this says of more calls than *other* that something is unknown."""
        return self.incomplete > other.incomplete or self.blank > other.blank


COUNTS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")


def account_of(events: Iterable[object]) -> Account:
    fold = UsageFold()
    for event in events:
        if isinstance(event, Usage):
            fold.apply(event)
    calls, sums = fold.total.calls, Counter[str]()
    for call in calls:
        sums.update({name: getattr(call, name) or 0 for name in COUNTS})
    incomplete = [one for one in calls if None in (one.input_tokens, one.output_tokens)]
    blank = [one for one in incomplete if one.tokens is None]
    return Account(dict(+sums), len(calls), len(incomplete), len(blank))


def used(case: Path, lines: Lines) -> Account:
    """Return what comes of *lines* in all, what is told behind the end of the turn too."""
    driver = new_driver(case.parent.name)
    said = [item for line in lines for item in driver.receive(line)]
    is_over = any(isinstance(item, TurnEnd | TurnFailed) for item in said)
    return account_of(said if is_over else [*said, *driver.ended(exit_of(case))])


@cache
def told_by(case: Path) -> tuple[tuple[Said, ...], ...]:
    """Return what each line of a recording tells, in its turn."""
    driver = new_driver(case.parent.name)
    return tuple(tuple(driver.receive(line)) for line in lines_of(case))


def are_of(kinds: type | UnionType, said: Iterable[Said]) -> bool:
    return any(isinstance(item, kinds) for item in said)


def telling(case: Path) -> list[int]:
    """Return which lines tell what was used or how the turn ended, and some that do not."""
    kinds = Usage | TurnEnd | TurnFailed
    tell = [number for number, said in enumerate(told_by(case)) if are_of(kinds, said)]
    count = len(lines_of(case))
    return sorted({*tell, *range(0, count, max(1, count // PLACES))})


@by_case
def test_a_line_that_comes_again_counts_nothing_more(case: Path) -> None:
    """One that cannot be read is the exception: nobody can tell that it came before."""
    lines = list(lines_of(case))
    whole = used(case, lines)

    for place in telling(case):
        if are_of(Note, told_by(case)[place]):
            continue
        for behind in (place + 1, place + 2, place + 5, len(lines)):
            where = f"line {place + 1} behind line {behind}"
            found = used(case, [*lines[:behind], lines[place], *lines[behind:]])

            assert found.tokens == whole.tokens, f"counted twice: {where}"
            assert found == whole, f"an unknown call too many: {where}"


@by_case
def test_a_lost_line_never_counts_more(case: Path) -> None:
    """But for the line that ends the turn of a recording that goes on: the turn goes on, too."""
    lines = list(lines_of(case))
    whole = used(case, lines)

    for place in telling(case):
        if not are_of(TurnEnd | TurnFailed, told_by(case)[place]):
            assert not used(case, [*lines[:place], *lines[place + 1 :]]).exceeds(whole), (
                f"line {place + 1}"
            )


@by_case
@pytest.mark.parametrize("quarters", [1, 2, 3])
def test_usage_on_a_line_cut_short_is_unknown_and_never_more(case: Path, quarters: int) -> None:
    """It may come on another line all the same."""
    lines = list(lines_of(case))
    whole = used(case, lines)

    for place in telling(case):
        if not are_of(Usage, said := told_by(case)[place]):
            continue
        short = lines[place][: len(lines[place]) * quarters // 4].rstrip() + b"\n"
        found = used(case, [*lines[:place], short, *lines[place + 1 :]])
        is_owned_up_to = not whole.exceeds(found) or found.admits_more_than(whole)

        if not are_of(TurnEnd | TurnFailed, said):
            assert not found.exceeds(whole), f"line {place + 1}"
        assert is_owned_up_to, f"line {place + 1} is taken for free"
