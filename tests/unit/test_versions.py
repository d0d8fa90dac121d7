"""Versions of a harness: what a program prints, and the ranges that a manifest may write."""

from __future__ import annotations

import pytest

from capsule_runtime.core.versions import find_version, is_within


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("2.1.332 (Claude Code)\n", "2.1.332"),
        ("codex-cli 0.171.0\n", "0.171.0"),
        ("v20.20.2", "20.20.2"),
        ("tool version 1.2\nbuilt with 3.4.5", "1.2"),
        ("0.62.0-nightly.20261130.abc\n", "0.62.0-nightly.20261130.abc"),
        ("", None),
        ("usage: tool [options]", None),
        ("7", None),
        ("x1.2", None),
        ("9" * 10_000 + ".1", None),
    ],
)
def test_a_version_is_found_in_what_programs_print(text: str, version: str | None) -> None:
    assert find_version(text) == version


@pytest.mark.parametrize(
    ("version", "bounds", "fits"),
    [
        ("2.1.332", ">=2.1,<3", True),
        ("3.0", ">=2.1,<3", False),
        ("2.1", "==2.1.0", True),
        ("2.1.1", "==2.1", False),
        ("2.0.9", ">=2.1", False),
        ("2.10.0", ">2.9", True),
        ("2.1.0", "<=2.1", True),
        ("2.1.0-rc.1", ">=2.1", True),
        ("1.0", "", True),
    ],
)
def test_a_range_is_held_against_numbers_not_words(version: str, bounds: str, fits: bool) -> None:
    assert is_within(version, bounds) is fits
