"""A sealed launch of which one process ends, is stopped or does less than it should."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace

from capsule_runtime import HostError
from capsule_runtime.host import process as host_process
from capsule_runtime.host.machine import find_machine
from capsule_runtime.host.namespaces import TRIAL, find_namespaces
from capsule_runtime.host.process import Exit
from support.cell import USUAL, open_cell
from support.processes import caged_by

SOON_SECONDS = 10
"""Far below the time that a launch may take."""

CHANGED = """
import os, runpy, signal, sys
sys.path.append({folder!r})
import entering
{change}
runpy.run_path({folder!r} + "/warden.py", run_name="__main__")
"""
KILLED_AT_BIRTH = """
def enter(*arguments, enter=entering.enter):
    if enter(*arguments) >= 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return -1
entering.enter = enter
"""
INIT_KILLED = """
def join(process, first, names, join=entering._join):
    join(process, first, names)
    if "pid" {when} names:
        os.kill(first, signal.SIGKILL)
entering._join = join
"""
BUBBLEWRAP_KILLED = """
def join(process, first, names, join=entering._join):
    if "pid" {when} names:
        os.kill(entering._parent(first), signal.SIGKILL)
    join(process, first, names)
entering._join = join
"""
OLD_ONE = """
import time
def fork(entrances, fork=entering._fork):
    new = fork(entrances)
    if new:
        {does}
    return new
entering._fork = fork
"""
BURIER_IS_LATE = """
import burier, time
def reap(self, reap=burier.Burier._reap):
    if self._harness:
        time.sleep(0.3)
    return reap(self)
burier.Burier._reap = reap
"""
JOINS_ALL_BUT = """
def known(known=entering._known_namespaces):
    return [name for name in known() if name != {name!r}]
entering._known_namespaces = known
"""
LEAVES_ONE_ALONE = """
exec 3<&0
cat <&3 &
echo "{ \\"child-pid\\": $! }" > /proc/self/fd/$1
dd bs=1 count=1 < /proc/self/fd/$3 > /dev/null 2>&1
wait
"""
KEEPS_ITS_CGROUPS = "entering._OWN_CGROUPS = 0"

Change = Callable[[str], None]


@pytest.fixture(autouse=True)
def namespaces() -> None:
    found = find_namespaces()
    if not found.variant:
        pytest.skip(found.why)


@pytest.fixture
def change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Change:
    """Return what has wardens run with a change of how a root is entered."""

    def changed(change: str) -> None:
        wrapper = tmp_path / "wrapper.py"
        folder = str(Path(host_process.__file__).parent)
        wrapper.write_text(CHANGED.format(folder=folder, change=change))
        command = (sys.executable, "-I", "-S", str(wrapper))
        monkeypatch.setattr("capsule_runtime.host.warden_process._COMMAND", command)

    return changed


async def test_a_harness_that_is_killed_before_it_began_is_not_waited_for(change: Change) -> None:
    change(KILLED_AT_BIRTH)
    async with open_cell() as cell:
        with anyio.fail_after(SOON_SECONDS), pytest.raises(HostError, match="killed before"):
            await cell.tries("print('ran')", cell.sealed())


async def test_a_harness_whose_burier_never_hears_of_it_runs_nothing(change: Change) -> None:
    change(OLD_ONE.format(does="os.kill(os.getpid(), signal.SIGKILL)"))
    async with open_cell() as cell:
        with anyio.fail_after(SOON_SECONDS), pytest.raises(HostError):
            await cell.tries("print('ran')", cell.sealed())

        assert caged_by(os.getpid()) == []


async def test_a_signal_reaches_a_harness_of_which_its_burier_hears_late(change: Change) -> None:
    change(OLD_ONE.format(does="time.sleep(0.3)"))
    async with (
        open_cell() as cell,
        cell.started("import signal; signal.pause()", cell.sealed()) as (tree, _),
    ):
        tree.signal(signal.SIGTERM)
        with anyio.fail_after(SOON_SECONDS):
            ended = await tree.exited()

    assert ended == Exit(None, signal.SIGTERM)


async def test_a_memory_too_small_to_begin_with_is_named() -> None:
    if not find_machine().cgroups.memory:
        pytest.skip("the kernel limits no memory here")
    async with open_cell() as cell:
        walls = cell.sealed(ceilings=replace(USUAL, memory=2**16))
        with anyio.fail_after(SOON_SECONDS), pytest.raises(HostError) as refused:
            await cell.tries("print('ran')", walls)

    assert "memory" in refused.value.hint


@pytest.mark.parametrize("words", ["exec tail -f /dev/null", "kill -STOP $$"])
async def test_a_root_that_is_never_there_is_waited_for_until_the_deadline(
    monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    monkeypatch.setattr(host_process, "START_SECONDS", 0.2)
    async with open_cell() as cell:
        walls = cell.sealed()
        assert walls.seal is not None
        stuck = replace(walls.seal, argv=("/bin/sh", "-c", words))
        with anyio.fail_after(SOON_SECONDS), pytest.raises(HostError, match="timed out"):
            await cell.tries("print('ran')", replace(walls, seal=stuck))

        assert caged_by(os.getpid()) == []


@pytest.mark.parametrize("death", [INIT_KILLED, BUBBLEWRAP_KILLED])
@pytest.mark.parametrize("when", ["in", "not in"])
async def test_a_launch_whose_namespaces_end_is_not_waited_for(
    change: Change, death: str, when: str
) -> None:
    change(death.format(when=when))
    async with open_cell() as cell:
        with anyio.move_on_after(SOON_SECONDS) as patience, suppress(HostError):
            await cell.tries("import signal; signal.pause()", cell.sealed())

    assert not patience.cancelled_caught


@pytest.mark.parametrize("name", ["uts", "ipc", "pid", "net", "mnt"])
async def test_who_has_not_joined_a_namespace_runs_nothing(change: Change, name: str) -> None:
    change(JOINS_ALL_BUT.format(name=name))
    async with open_cell() as cell:
        with pytest.raises(HostError) as refused:
            await cell.tries("print('ran')", cell.sealed())

    assert refused.value.code == "E-HOST-030"


async def test_who_sees_the_names_of_its_cgroups_runs_nothing(change: Change) -> None:
    change(KEEPS_ITS_CGROUPS)
    async with open_cell() as cell:
        with pytest.raises(HostError, match="namespaces of its caller: cgroup"):
            await cell.tries("print('ran')", cell.sealed())


async def test_what_bubblewrap_complains_of_is_told_whatever_its_last_letter() -> None:
    async with open_cell() as cell:
        walls = cell.sealed()
        assert walls.seal is not None
        argv = ("/bin/sh", "-c", "printf 'there is no box'")
        with pytest.raises(HostError, match="there is no box"):
            await cell.tries("print('ran')", replace(walls, seal=replace(walls.seal, argv=argv)))


@pytest.mark.parametrize("code", [0, 3, 255])
async def test_how_a_harness_ended_is_told_though_its_burier_hears_late_that_it_began(
    change: Change, code: int
) -> None:
    change(BURIER_IS_LATE)
    async with (
        open_cell() as cell,
        cell.started(f"raise SystemExit({code})", cell.sealed()) as (
            tree,
            _,
        ),
    ):
        with anyio.fail_after(SOON_SECONDS):
            ended = await tree.exited()

    assert ended == Exit(code, None)


def test_a_trial_leaves_nothing_though_what_was_started_outlives_what_started_it(
    tmp_path: Path,
) -> None:
    alone = ("/bin/sh", "-c", LEAVES_ONE_ALONE)
    trial = [sys.executable, "-I", "-S", TRIAL, str(tmp_path), "-", *alone]

    done = subprocess.run(trial, capture_output=True, text=True, timeout=SOON_SECONDS, check=False)

    assert done.returncode == 0
    assert done.stdout == "it has no processes of its own\n"
