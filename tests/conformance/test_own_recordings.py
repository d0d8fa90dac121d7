"""Every driver knows what its own harness wrote: `capsule replay` complains of no such recording."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from capsule_runtime.driver import driver_names
from capsule_runtime.replay import Attentive, replay_events
from support.player import exit_of, new_driver

TRANSCRIPTS = Path(__file__).parent / "transcripts"
CASES = [
    path
    for name in driver_names()
    for path in sorted((TRANSCRIPTS / name).glob("*.jsonl"))
    if not path.stem.endswith((".events", ".frames"))
]


@pytest.mark.parametrize("case", CASES, ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_a_driver_makes_events_of_what_its_own_harness_wrote(case: Path) -> None:
    driver = Attentive(new_driver(case.parent.name))

    list(replay_events(driver, io.BytesIO(case.read_bytes()), exit_of(case)))

    assert driver.has_understood == driver.has_heard
