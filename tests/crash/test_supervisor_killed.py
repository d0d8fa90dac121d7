"""Supervisors killed at any moment: nothing of their runs lives on, and each run gets its end."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from capsule_runtime import Outcome, Reason
from capsule_runtime.host.namespaces import find_namespaces
from capsule_runtime.host.scoping import find_scopes
from capsule_runtime.runs import open_runs
from support.harness import agent_capsule
from support.logs import Log, assert_well_ended
from support.processes import caged_by, harnesses_below, processes_below, processes_of, wait_gone

CRASHING = Path(__file__).parents[1] / "support" / "crashing.py"

pytestmark = [
    pytest.mark.parametrize("anyio_backend", ["asyncio"]),
    pytest.mark.timeout(180),
]


@dataclass(frozen=True, slots=True)
class Told:
    """What a supervisor told of its run before it was killed."""

    supervisor: int
    run: str | None
    log: bytes


Crash = Callable[[str, str, str, int, int], list[Told]]
TIERS = ("advisory", "scoped", "sealed")
HOST = "example.invalid"
"""What a scoped run is granted, so that a broker and a proxy stand beside it."""


@pytest.fixture
def victims() -> str:
    """Return who is killed: the supervisor alone, if a test says nothing else."""
    return "supervisor"


@pytest.fixture
def crash(tmp_path: Path, victims: str, monkeypatch: pytest.MonkeyPatch) -> Crash:
    """Return what kills supervisors: (verb, tier, mark, span in ms, how many), two at a time."""

    def kill(verb: str, tier: str, mark: str, span_ms: int, count: int) -> list[Told]:
        capsule = agent_capsule(tmp_path / "capsule", verb)
        if tier == "scoped":
            with (capsule / "capsule.toml").open("a") as manifest:
                manifest.write(f'[capabilities]\nhosts = ["{HOST}"]\n')
            monkeypatch.setenv("CAPSULE_GRANT", f"host={HOST}")
        folders = [tmp_path / "told-1", tmp_path / "told-2"]
        loops: list[subprocess.Popen[bytes]] = []
        for folder in folders:
            folder.mkdir()
            words = (tmp_path / "state", capsule, tier, victims, mark, span_ms, count // 2, folder)
            loops.append(subprocess.Popen([sys.executable, str(CRASHING), *map(str, words)]))
        assert [loop.wait() for loop in loops] == [0, 0]
        return [told(path) for folder in folders for path in folder.iterdir()]

    return kill


def told(path: Path) -> Told:
    heard = path.read_bytes()
    assert heard.startswith(b"open\n")
    run, _, log = heard.removeprefix(b"open\n").partition(b"\n")
    return Told(int(path.name), run.decode() or None, log)


def skip_without(tier: str) -> None:
    if tier == "sealed" and not (found := find_namespaces()).variant:
        pytest.skip(found.why)
    if tier == "scoped" and (why := find_scopes().why):
        pytest.skip(why)


async def recovered(state: Path, killed: list[Told]) -> dict[str, Log]:
    """End what is left, check what must be true of all of it, and return the logs."""
    async with open_runs(state) as runs:
        await runs.recover()
        assert harnesses_below(state) == []
        assert [pid for it in killed for pid in caged_by(it.supervisor)] == []
        for pid in processes_below(state):  # wardens that nobody's run waits for
            wait_gone(pid)
        found = runs.recent(limit=10_000)
        logs = {row.id: Log(tuple(runs.rows(row.id))) for row in found}
        assert await runs.check() == []
        assert [pid for run in logs for pid in processes_of(run)] == []
    for log in logs.values():
        assert_well_ended(log)
    return logs


# From the opening of the supervisor on, and from the moment that its run exists.
@pytest.mark.parametrize("mark", ["open", "run_"])
@pytest.mark.parametrize("victims", ["supervisor", "both"])
@pytest.mark.parametrize("tier", TIERS)
async def test_a_kill_in_the_first_40_ms_leaves_nothing(
    tmp_path: Path, crash: Crash, tier: str, mark: str
) -> None:
    skip_without(tier)
    killed = crash("clings", tier, mark, 40, 100)

    logs = await recovered(tmp_path / "state", killed)
    assert len(killed) == 100
    assert {it.run for it in killed if it.run} <= logs.keys()
    if mark == "run_":
        assert len(logs) == 100
    for log in logs.values():
        assert log.record.ended is not None
        assert (log.record.ended.outcome, log.record.ended.reason) == (Outcome.LOST, Reason.LOST)


async def test_a_kill_in_the_middle_of_a_stream_loses_nothing_that_was_seen(
    tmp_path: Path, crash: Crash
) -> None:
    killed = crash("streams", "advisory", '"type":"text"', 150, 40)

    logs = await recovered(tmp_path / "state", killed)
    assert len(killed) == len(logs) == 40
    for it in killed:
        log = logs[it.run or ""]
        assert log.body.startswith(it.log)
        assert log.record.outcome is Outcome.LOST
    assert max(len(it.log) for it in killed) > 100_000
