"""A run in a context takes place where the context does."""

from __future__ import annotations

import pytest

from capsule_runtime.core.setting import Difference, Setting, difference

MADE = Setting("unsealed", "/state/home", "/project")


def test_a_run_at_the_same_places_does_not_differ() -> None:
    assert difference(MADE, MADE) is None


@pytest.mark.parametrize(
    ("run", "found"),
    [
        (Setting("sealed", "/home/agent", "/work"), Difference("tier", "unsealed", "sealed")),
        (
            Setting("unsealed", "/state/home", "/other"),
            Difference("workdir", "/project", "/other"),
        ),
        (
            Setting("unsealed", "/moved/home", "/project"),
            Difference("home", "/state/home", "/moved/home"),
        ),
    ],
)
def test_the_field_that_differs_is_named_with_both_values(run: Setting, found: Difference) -> None:
    assert difference(MADE, run) == found


def test_what_an_old_context_does_not_know_differs_from_nothing() -> None:
    assert difference(Setting(), MADE) is None
