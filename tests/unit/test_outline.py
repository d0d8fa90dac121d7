"""A value as indented lines: names beside values, and how far values move to the right."""

from __future__ import annotations

from capsule_runtime.cli.outline import outline


def test_values_stand_in_one_column() -> None:
    assert outline({"run": "r", "outcome": "ok"}) == "run      r\noutcome  ok\n"


def test_a_name_that_is_very_long_moves_no_other_value() -> None:
    long = "files in /somewhere/far/away/from/here"

    assert outline({"run": "r", long: None}) == f"run  r\n{long}  -\n"
