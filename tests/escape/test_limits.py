"""Memory, processes and disk: what is taken too much of ends the run as limited."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest
from msgspec.structs import replace

from capsule_runtime import Outcome, Reason, UsageError, exit_code
from capsule_runtime.active_run import ActiveRun
from capsule_runtime.core.facts import Launched
from capsule_runtime.core.log import decode_entries
from capsule_runtime.core.machine import Hierarchies
from capsule_runtime.host.cgroup import count_in
from capsule_runtime.host.leftovers import new_cage_name, remove_leftovers
from capsule_runtime.host.machine import find_machine
from capsule_runtime.request import check_request
from capsule_runtime.supervisor import open_supervisor
from support.cell import USUAL, Cell
from support.harness import agent_capsule
from support.logs import Log, finished
from support.processes import parent_of, wait_gone
from support.supervised import ended, heard, request_for

MIB = 1024**2


@pytest.fixture
def disk() -> Generator[Path]:
    """A folder outside of /tmp, which others write to as well."""
    folder = Path(tempfile.mkdtemp(prefix="disk-", dir="/var/tmp"))
    yield folder
    shutil.rmtree(folder)


def outcome_of(log: Log) -> tuple[Outcome | None, Reason | None]:
    return log.record.outcome, log.record.reason


def without_cgroups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this machine have no cgroups, as most have none for a plain user."""
    machine = replace(find_machine(), cgroups=Hierarchies(why="none here"))
    monkeypatch.setattr("capsule_runtime.containing.find_machine", lambda: machine)


async def run_of(folder: Path, verb: str, *arguments: str, **limits: str | int) -> Log:
    capsule = agent_capsule(folder / "capsule", verb, *arguments, limits=limits)
    async with open_supervisor(folder / "state") as supervisor:
        return await ended(await supervisor.start(request_for(capsule)))


async def pid_of(run: ActiveRun) -> int:
    """Return the process of the harness, as the log has it."""
    async for row in run.follow():
        for entry in decode_entries(row.body):
            if isinstance(entry, Launched):
                return entry.pid
    raise AssertionError(f"{run.id} was not launched")


def mechanism(log: Log, name: str) -> str:
    assert log.record.containment is not None
    found: str = getattr(log.record.containment.axes.resources, name)
    return found


def leftovers() -> list[str]:
    """Return the cgroups that runs of this process left."""
    mark = f"-{os.getpid()}-"
    return [
        name
        for place in find_machine().cgroups.places
        for name in os.listdir(place)
        if name.startswith("capsule-") and mark in name
    ]


async def test_a_memory_hog(tmp_path: Path, cgroups: str) -> None:
    log = await run_of(tmp_path, "hogs_memory", "256", memory="64MiB")

    assert outcome_of(log) == (Outcome.LIMITED, Reason.MEMORY)
    assert exit_code(Outcome.LIMITED, Reason.MEMORY) == 11
    assert "more than its memory limit of 64.0 MiB" in log.final.message
    assert mechanism(log, "memory") == cgroups
    assert leftovers() == []


async def test_a_hog_among_its_children(tmp_path: Path, cgroups: str) -> None:
    """The kernel ends the child; the harness would go on, but its run is over."""
    log = await run_of(tmp_path, "feeds_a_hog", "256", memory="64MiB")

    assert cgroups
    assert outcome_of(log) == (Outcome.LIMITED, Reason.MEMORY)


async def test_a_memory_hog_without_cgroups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_cgroups(monkeypatch)

    log = await run_of(tmp_path, "hogs_memory", "256", memory="64MiB")

    assert outcome_of(log) == (Outcome.LIMITED, Reason.MEMORY)
    assert "observed" in log.final.message
    assert mechanism(log, "memory") == "rlimit+poll"


async def test_enough_memory(tmp_path: Path) -> None:
    log = await run_of(tmp_path, "hogs_memory", "64", memory="256MiB")

    assert log.final.response == "fed"


async def test_a_bomb_of_processes(tmp_path: Path, cgroups: str) -> None:
    log = await run_of(tmp_path, "bombs", processes=40)

    assert outcome_of(log) == (Outcome.LIMITED, Reason.PROCESSES)
    assert exit_code(Outcome.LIMITED, Reason.PROCESSES) == 11
    assert "more than its limit of 40 processes and threads" in log.final.message
    assert log.record.tree is not None
    assert log.record.tree.killed <= 40
    assert mechanism(log, "processes") == cgroups
    assert leftovers() == []


async def test_a_bomb_of_processes_without_cgroups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_cgroups(monkeypatch)

    log = await run_of(tmp_path, "fork_bomb_that_stays", "128", processes=40)

    assert outcome_of(log) == (Outcome.LIMITED, Reason.PROCESSES)
    assert "observed" in log.final.message
    assert "poll" in mechanism(log, "processes")


async def test_what_lost_its_watchers_and_its_name_is_found_in_its_cgroups(
    tmp_path: Path, cgroups: str
) -> None:
    capsule = agent_capsule(tmp_path / "capsule", "forgets_its_name")
    async with open_supervisor(tmp_path / "state") as supervisor:
        run = await supervisor.start(request_for(capsule))
        await heard(run, "nameless")
        harness = await pid_of(run)
        burier = parent_of(harness)
        for watcher in (parent_of(burier), burier):
            os.kill(watcher, signal.SIGKILL)

        log = await finished(run)

    assert cgroups
    assert outcome_of(log) == (Outcome.FAILED, Reason.INDETERMINATE)
    wait_gone(harness)
    assert leftovers() == []


async def test_threads_count_too(tmp_path: Path, cgroups: str) -> None:
    log = await run_of(tmp_path, "starts_threads", "60", processes=40)

    assert cgroups
    assert outcome_of(log) == (Outcome.LIMITED, Reason.PROCESSES)


async def test_a_filler_of_the_disk(disk: Path) -> None:
    log = await run_of(disk, "fills_disk", "48", disk="16MiB")

    assert outcome_of(log) == (Outcome.LIMITED, Reason.DISK)
    assert exit_code(Outcome.LIMITED, Reason.DISK) == 11
    assert "more than its disk limit of 16.0 MiB" in log.final.message


async def test_one_file_that_is_too_large(disk: Path) -> None:
    log = await run_of(disk, "writes_one_file", "48", disk="16MiB")

    assert outcome_of(log) == (Outcome.LIMITED, Reason.DISK)
    assert os.stat(disk / "big").st_size == 16 * MIB


async def test_a_wish_only_lowers(tmp_path: Path) -> None:
    capsule = agent_capsule(tmp_path / "capsule", "polite", "0", limits={"memory": "64MiB"})
    async with open_supervisor(tmp_path / "state") as supervisor:
        run = await supervisor.start(request_for(capsule, memory_bytes=2**40, processes=7))
        await run.stop(Reason.KILLED)
        record = await run.record()

    assert record.attempt is not None
    assert record.attempt.limits["memory_bytes"] == 64 * MIB
    assert record.attempt.limits["processes"] == 7


async def test_a_wish_that_no_harness_could_start_with(tmp_path: Path) -> None:
    capsule = agent_capsule(tmp_path / "capsule", "polite", "0")

    for wish in (
        request_for(capsule, memory_bytes=1),
        request_for(capsule, processes=1),
    ):
        with pytest.raises(UsageError, match="must be at least") as refused:
            check_request(wish)
        assert refused.value.code == "E-USE-051"


async def test_a_run_is_slowed_to_its_share_of_a_processor(cell: Cell, cgroups: str) -> None:
    if not find_machine().cgroups.cpu:
        pytest.skip(f"{cgroups} without the cpu controller")
    code = """
import time
began, used = time.monotonic(), time.process_time()
while time.monotonic() - began < 1:
    pass
print(time.process_time() - used)
"""
    ceilings = replace(USUAL, cpus=0.2)

    assert float(await cell.tries(code, cell.walls(ceilings=ceilings))) < 0.5


async def test_a_cgroup_that_is_removed_while_somebody_looks(cgroups: str) -> None:
    assert cgroups
    folder = Path(find_machine().cgroups.processes) / new_cage_name()
    folder.mkdir()
    counter = os.open(folder / "pids.events", os.O_RDONLY)
    try:
        folder.rmdir()

        assert count_in(counter, b"max") == 0
    finally:
        os.close(counter)


async def test_leftovers_of_the_dead_are_removed_and_of_the_living_are_not(cgroups: str) -> None:
    assert cgroups
    place = Path(find_machine().cgroups.processes)
    boot = new_cage_name().removeprefix("capsule-")[:36]
    dead, living = place / f"capsule-{boot}-99999999-1", place / new_cage_name()
    for folder in (dead, living):
        folder.mkdir()
    try:
        removed = remove_leftovers([str(place)])

        assert removed >= 1
        assert (dead.exists(), living.exists()) == (False, True)
    finally:
        living.rmdir()
