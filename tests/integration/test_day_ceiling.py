"""The ceilings of a day, among many: slices never pass them, and eight processes keep within."""

from __future__ import annotations

import sqlite3
import subprocess
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capsule_runtime.core.ceilings import DayCeilings
from capsule_runtime.core.day_share import Needs
from capsule_runtime.host.reservations import Claim, Settlement, exhausted, reserve, settle
from capsule_runtime.host.statements import load_migrations, split_statements
from support.command import ADVISORY, PROGRAM, Command
from support.spending import spender

CALL = 100


def database() -> sqlite3.Connection:
    """Return a database of our schema, in memory."""
    made = sqlite3.connect(":memory:", isolation_level=None)
    for migration in load_migrations():
        for statement in split_statements(migration.text):
            made.execute(statement)
    return made


def taken(made: sqlite3.Connection, day: str = "d1") -> int:
    ((tokens,),) = made.execute("select total(tokens) from reservations where day = ?", (day,))
    return int(tokens)


def claim(run: str, tokens: int = 0, call: int = 0, *, ceiling: int, day: str = "d1") -> Claim:
    return Claim(run, "sup", day, DayCeilings(tokens=ceiling), Needs(0, tokens, 0, call))


steps = st.lists(st.tuples(st.sampled_from("abcdefgh"), st.booleans()), max_size=60)


@given(st.integers(1, 5000), steps)
def test_no_run_that_keeps_to_its_share_passes_the_ceiling(
    ceiling: int, steps: list[tuple[str, bool]]
) -> None:
    used: dict[str, int] = {}
    ended: set[str] = set()
    with closing(database()) as made:
        for run, ends in steps:
            if run in ended:
                continue
            if ends and run in used:
                settle(made, Settlement(run, 0, used[run]))
                ended.add(run)
            elif run in used or exhausted(made, claim(run, ceiling=ceiling)) is None:
                tokens = used.get(run, 0)
                share = reserve(made, claim(run, tokens, CALL, ceiling=ceiling))
                assert share.tokens is not None
                used[run] = max(tokens, min(tokens + CALL, share.tokens))
            assert taken(made) <= ceiling
            assert sum(used.values()) <= ceiling


@given(st.lists(st.integers(0, 500), min_size=1, max_size=20))
def test_what_was_used_is_what_counts_in_the_end(uses: list[int]) -> None:
    with closing(database()) as made:
        for number, tokens in enumerate(uses):
            reserve(made, claim(f"run{number}", ceiling=1000))
            settle(made, Settlement(f"run{number}", 0, tokens))

        assert taken(made) == sum(uses)


def test_what_is_used_beyond_a_slice_is_seen_by_others_at_once() -> None:
    with closing(database()) as made:
        reserve(made, claim("a", ceiling=1000))
        reserve(made, claim("a", 1000, CALL, ceiling=1000))

        assert taken(made) == 1000
        assert exhausted(made, claim("b", ceiling=1000)) is not None


def test_a_run_that_goes_on_past_midnight_spends_from_the_new_day() -> None:
    with closing(database()) as made:
        reserve(made, claim("a", ceiling=1000))
        share = reserve(made, claim("a", 150, CALL, ceiling=1000, day="d2"))
        assert (taken(made, "d1"), share.day) == (150, "d2")
        assert share.tokens is not None and share.tokens >= 150 + 3 * CALL

        settle(made, Settlement("a", 0, 400))

        assert (taken(made, "d1"), taken(made, "d2")) == (150, 250)


def test_absurd_amounts_hurt_nobody() -> None:
    with closing(database()) as made:
        for run in "abc":
            reserve(made, claim(run, 2**70, 2**70, ceiling=1000))
            settle(made, Settlement(run, 0, 2**62))

        assert exhausted(made, claim("d", ceiling=1000)) is not None


@pytest.mark.timeout(120)
def test_eight_processes_share_the_ceiling_of_a_day_without_passing_it(tmp_path: Path) -> None:
    ceiling = 8_000
    command = Command(tmp_path)
    env = {**command.env, "CAPSULE_DAY_TOKENS": str(ceiling)}
    capsule = spender(tmp_path / "capsule", "works", "1000", str(CALL))
    words = [PROGRAM, "run", str(capsule), "--task", "go", *ADVISORY, "--format", "quiet"]
    with ExitStack() as started:
        runs = [
            started.enter_context(
                subprocess.Popen(
                    words,
                    env=env,
                    cwd=tmp_path,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                )
            )
            for _ in range(8)
        ]
        told = [run.communicate()[1].decode() for run in runs]
    with closing(sqlite3.connect(command.state / "capsule.db")) as store:
        rows = store.execute("select tokens, state from reservations").fetchall()
    after = command(*words[1:], env={"CAPSULE_DAY_TOKENS": str(ceiling)})

    assert [run.returncode for run in runs] == [3] * 8, told
    assert all("the tokens ceiling of 8000 for the day" in words for words in told)
    assert [state for _, state in rows] == ["settled"] * 8
    total = sum(tokens for tokens, _ in rows)
    # Each leaves what would have covered the call under way, and less than another.
    assert ceiling - 8 * 2 * CALL <= total <= ceiling
    assert after.status == 3
