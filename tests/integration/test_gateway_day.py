"""A run whose calls go on over midnight in UTC: each counts for the day on which it was held."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from capsule_runtime.core.ceilings import DayCeilings
from capsule_runtime.core.journal import Moment
from capsule_runtime.host.clock import SystemClock
from capsule_runtime.supervisor import open_supervisor
from support.asker import KEY_VARIABLE, asker, body, called, configure, mock
from support.canary import REAL_KEY
from support.supervised import ended, request_for

pytestmark = pytest.mark.anyio
FIRST, SECOND = "2026-01-31", "2026-02-01"


class OverMidnight:
    """A clock at which the second day begins once *log* has a call."""

    def __init__(self, log: Path) -> None:
        self._clock = SystemClock()
        self._log = log

    def moment(self) -> Moment:
        now = self._clock.moment()
        day = SECOND if called(self._log) else FIRST
        return replace(now, at=f"{day}{now.at[len(day) :]}")


@pytest.fixture
def provider(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with mock(tmp_path) as (url, log):
        monkeypatch.setenv("CAPSULE_CONFIG", str(configure(tmp_path, url)))
        monkeypatch.setenv(KEY_VARIABLE, REAL_KEY)
        yield log


async def test_each_call_counts_for_its_day(tmp_path: Path, provider: Path) -> None:
    capsule = Path(asker(tmp_path / "capsule", body(), count=3))
    day = DayCeilings(microusd=1_000_000)

    async with open_supervisor(
        tmp_path / "state", clock=OverMidnight(provider), day=day
    ) as supervisor:
        asked = request_for(capsule, grants=("provider=anthropic",))
        log = await ended(await supervisor.start(asked))

    rows = reservations(tmp_path / "state")
    charges = [call.ended.microusd for call in log.record.calls.calls if call.ended]
    assert len(charges) == 3
    assert [day for day, _ in rows] == [FIRST, SECOND]
    assert sum(microusd for _, microusd in rows) == sum(charges)
    assert rows[1][1] >= charges[1] + charges[2]


def reservations(state: Path) -> list[tuple[str, int]]:
    """Return what each day has had."""
    with closing(sqlite3.connect(state / "capsule.db")) as made:
        return made.execute("select day, microusd from reservations order by day").fetchall()
