"""A sealed launch of which one process ends, is stopped or does less than it should."""

from __future__ import annotations

import os
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
from capsule_runtime.host.namespaces import find_namespaces
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
    if enter(*arguments):
        os.kill(os.getpid(), signal.SIGKILL)
    return False
entering.enter = enter
"""
INIT_KILLED = """
def join(bubblewrap, join=entering._join):
    join(bubblewrap)
    os.kill(entering.children(bubblewrap)[0], signal.SIGKILL)
entering._join = join
"""
BUBBLEWRAP_KILLED = """
def join(bubblewrap, join=entering._join):
    os.kill(bubblewrap, signal.SIGKILL)
    join(bubblewrap)
entering._join = join
"""
BURIER_IS_LATE = """
import burier
def receive(self, descriptor, receive=burier.Burier._receive):
    if descriptor != self._supervisor or self._is_sealed:
        receive(self, descriptor)
burier.Burier._receive = receive
"""
JOINS_ALL_BUT = """
def is_other(process, name, is_other=entering._is_other):
    return name != {name!r} and is_other(process, name)
entering._is_other = is_other
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
async def test_a_launch_whose_namespaces_end_is_not_waited_for(change: Change, death: str) -> None:
    change(death)
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
