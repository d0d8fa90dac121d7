"""Stdin is kept for those who have more to say, and ends for everybody else.

A harness that waits for the end of its stdin waits for ever if that stays open; words for one whose
stdin has ended reach nobody.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import get_args, get_type_hints

import pytest
from msgspec import Struct

from capsule_runtime import Answer, Driver, LaunchPlan, Refused, find_driver
from capsule_runtime.driver import Configurable, driver_names
from support.launches import request_of

Mode = tuple[str, str | None]


def modes() -> Iterator[Mode]:
    """Yield every installed driver in each mode that its configuration knows."""
    for name in driver_names():
        kinds = get_args(get_type_hints(find_driver(name).Config).get("mode"))
        # Only a closed choice is ours; `mode` of an open one is the harness's.
        choices = [kind for kind in kinds if isinstance(kind, str)]
        if not choices:
            yield name, None
        yield from ((name, choice) for choice in choices)


def launched(mode: Mode, session: str | None) -> tuple[Driver, LaunchPlan]:
    """Return a driver in *mode* that has planned a launch, and the plan."""
    name, choice = mode
    kind = find_driver(name)
    config: Struct = kind.Config(**({"mode": choice} if choice else {}))
    driver = kind()
    if isinstance(driver, Configurable):
        driver.configure(config)
    described = driver.describe()
    request = replace(
        request_of(kind),
        command=described.command or ("agent",),
        config=config,
        env=dict.fromkeys(described.keys, "k"),
        model="openai:gpt-5",
        session=session if described.resumes else None,
    )
    return driver, driver.launch(request)


def has_more_to_say(driver: Driver) -> bool:
    """Whether something can come after the task, as far as *driver* describes it."""
    described = driver.describe()
    by_signal = described.interrupt_signal is not None
    return described.steers or described.asks_permission or not by_signal


every_launch = pytest.mark.parametrize(
    ("mode", "session"),
    [
        pytest.param(mode, session, id="-".join(filter(None, (*mode, session))))
        for mode in modes()
        for session in (None, "ses_1")
    ],
)


@every_launch
def test_stdin_is_kept_where_more_is_to_be_said(mode: Mode, session: str | None) -> None:
    driver, plan = launched(mode, session)

    assert plan.keep_stdin == has_more_to_say(driver)


@every_launch
def test_a_dialogue_begins_with_words(mode: Mode, session: str | None) -> None:
    _, plan = launched(mode, session)

    assert not plan.keep_stdin or plan.stdin.endswith(b"\n")


@every_launch
def test_nothing_is_said_to_one_whose_stdin_has_ended(mode: Mode, session: str | None) -> None:
    driver, plan = launched(mode, session)
    if plan.keep_stdin:
        return
    said = [
        driver.steer("s1", "more"),
        driver.answer("p1", Answer("allow")),
        driver.answer("p1", Refused("E-RUN-001", "no")),
        driver.interrupt(),
    ]

    assert said == [None] * 4
    assert driver.describe().interrupt_signal is not None


def test_both_kinds_are_among_the_launches() -> None:
    kept = {mode: launched(mode, None)[1].keep_stdin for mode in modes()}

    assert {mode for mode, keeps in kept.items() if not keeps} == {
        ("codex", "exec"),
        ("gemini", "stream-json"),
        ("mini-swe-agent", None),
        ("opencode", "run"),
    }
