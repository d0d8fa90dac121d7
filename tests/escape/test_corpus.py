"""Every escape that we know of, in every tier: what got out is what the tier says is open.

What a probe does without walls is the proof that it does something.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import msgspec
import pytest

from support.corpus.probe import PROBES, Probe
from support.corpus.program import Report, report_of
from support.corpus.sealing import ELSEWHERE
from support.corpus.tiers import TIERS
from support.corpus.trying import (
    CANNOT,
    CEILING,
    ESCAPED,
    HELD,
    Matrix,
    Result,
    matrix_of,
    show,
    useless,
    verdict,
)

TESTS = Path(__file__).parents[1]
WALLED = [name for name, tier in TIERS.items() if tier.promises]
OF_THE_LIST = range(1, 56)

pytestmark = pytest.mark.timeout(240)


@cache
def report(tier: str) -> Report:
    """Return what came of all probes in *tier*; tried once."""
    return report_of(tier)


def result_of(probe: Probe, tier: str) -> Result:
    told = report(tier)
    if tier in told.lacking:
        pytest.skip(told.lacking[tier])
    (found,) = [result for result in told.results if result.probe == str(probe)]
    assert not found.trouble, found.trouble
    return found


@pytest.mark.parametrize("tier", WALLED)
@pytest.mark.parametrize("probe", PROBES, ids=str)
def test_only_what_is_said_to_be_open_is(probe: Probe, tier: str) -> None:
    assert result_of(probe, tier).unstated == ()


@pytest.mark.parametrize("probe", [one for one in PROBES if not one.nowhere], ids=str)
def test_it_gets_out_where_there_are_no_walls(probe: Probe) -> None:
    found = result_of(probe, "none")

    assert useless(matrix_of([found], {})) == []


def test_the_list_is_complete() -> None:
    numbers = {probe.number for probe in PROBES} | {probe.number for probe in ELSEWHERE}

    assert sorted(numbers | {53, 54}) == list(OF_THE_LIST)
    assert [
        one.where
        for one in ELSEWHERE
        if one.where.startswith("tests/") and not (TESTS.parent / one.where).exists()
    ] == []


def made(**changes: object) -> Result:
    usual = {"probe": "01", "tries": "it", "tier": "rootns", "ways_out": (), "unstated": ()}
    return msgspec.convert({**usual, "is_ceiling": False, "seconds": 0.0, **changes}, Result)


@pytest.mark.parametrize(
    ("results", "lacking", "ends_with"),
    [
        ([made()], {}, HELD),
        ([made()], {"rootns": "why"}, CANNOT),
        ([made(unstated=("way",), is_ceiling=True)], {"rootns": "why"}, CEILING),
        ([made(unstated=("way",), is_ceiling=True), made(unstated=("way",))], {}, ESCAPED),
        ([made(trouble="it broke")], {}, ESCAPED),
    ],
)
def test_what_the_program_ends_with(
    results: list[Result], lacking: Mapping[str, str], ends_with: int
) -> None:
    assert verdict(matrix_of(results, dict(lacking))) == ends_with


def test_the_program_prints_and_stores_the_matrix(tmp_path: Path) -> None:
    path = tmp_path / "matrix.json"
    argv = [
        sys.executable,
        str(TESTS / "escape" / "matrix.py"),
        "--json",
        str(path),
        "--only",
        "01",
    ]
    done = subprocess.run([*argv, "none", "advisory"], capture_output=True, text=True, check=False)

    matrix = msgspec.json.decode(path.read_bytes(), type=Matrix)
    assert done.returncode in (HELD, CANNOT), done.stderr
    assert show(matrix) in done.stdout
    assert [(one.tier, bool(one.ways_out)) for one in matrix.results] == [
        ("none", True),
        ("advisory", False),
    ]
