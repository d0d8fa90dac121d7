"""SIGKILL of the supervisor, the warden or a burier at any moment leaves nothing of a run."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import anyio
import pytest

from capsule_runtime.errors import HostError
from capsule_runtime.host.process import Spawn, open_warden
from capsule_runtime.host.sweep import children
from support.processes import processes_below, processes_of, wait_gone

SUPERVISOR_MOMENTS = 200
OTHER_MOMENTS = 40
LAST_MOMENT_SECONDS = 0.04

HARNESS = """
trap "" HUP INT TERM
setsid sh -c "setsid sleep 1000 & sleep 1000 & sleep 1000" &
sleep 1000 & sleep 1000
"""

# It has imported what a supervisor needs and forks one for each line, so that each starts at once.
# A supervisor says its pid and begins. With a second word it then forks without exec: such a child
# holds all that its parent had open.
SUPERVISORS = f"""
import os, signal, sys
import anyio, anyio._backends._asyncio
from capsule_runtime.host.process import Spawn, open_warden

async def supervise(state, run, forks=False):
    spawn = Spawn(run, ("/bin/sh", "-c", {HARNESS!r}), {{"CAPSULE_RUN": run}}, "/")
    async with open_warden(f"{{state}}/{{run}}.warden", f"{{state}}/{{run}}.sock.warden") as warden:
        tree = await warden.spawn(spawn, 0, 2, 2)
        if forks and os.fork() == 0:
            os.write(1, b"%d\\n" % os.getpid())
            signal.pause()
        await tree.exited()

for line in sys.stdin:
    if (pid := os.fork()) == 0:
        os.write(1, b"%d\\n" % os.getpid())
        anyio.run(supervise, *line.split())
        os._exit(0)
    os.waitpid(pid, 0)
"""


class Supervisors:
    """Has supervisors started, one after the other."""

    def __init__(self, process: subprocess.Popen[str], state: Path) -> None:
        self._process = process
        self._state = state

    def start(self, run: str, forks: str = "") -> int:
        """Return the pid of a supervisor that starts *run* just now."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{self._state} {run} {forks}\n")
        self._process.stdin.flush()
        return self.read_pid()

    def read_pid(self) -> int:
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("state")


@pytest.fixture(scope="module")
def supervisors(state: Path) -> Generator[Supervisors]:
    command = [sys.executable, "-c", SUPERVISORS]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        yield Supervisors(process, state)
        assert process.stdin is not None
        process.stdin.close()


@pytest.mark.parametrize("moment", range(SUPERVISOR_MOMENTS))
def test_killing_the_supervisor(supervisors: Supervisors, state: Path, moment: int) -> None:
    run = f"run_supervisor{moment}"
    supervisor = supervisors.start(run)

    kill_after(supervisor, moment * LAST_MOMENT_SECONDS / SUPERVISOR_MOMENTS)

    wait_unlocked(state / f"{run}.warden")
    assert processes_of(run) == []


def test_killing_a_supervisor_whose_child_holds_all_it_had(
    supervisors: Supervisors, state: Path
) -> None:
    supervisor = supervisors.start("run_forks", "forks")
    heir = supervisors.read_pid()

    os.kill(supervisor, signal.SIGKILL)

    wait_unlocked(state / "run_forks.warden")
    assert processes_of("run_forks") == []
    os.kill(heir, signal.SIGKILL)
    wait_gone(heir)


def test_wardens_end_with_their_supervisors(supervisors: Supervisors, state: Path) -> None:
    """Also one that was killed while its warden had not even opened its eyes."""
    supervisor = supervisors.start("run_last")

    kill_after(supervisor, 0.005)

    for pid in processes_below(state):
        wait_gone(pid)
    assert processes_below(state) == []


def warden_here() -> list[int]:
    return children(os.getpid())


def burier_here() -> list[int]:
    return [burier for warden in warden_here() for burier in children(warden)]


@pytest.mark.parametrize("moment", range(OTHER_MOMENTS))
@pytest.mark.parametrize("victims", [warden_here, burier_here])
async def test_killing_what_stands_between(
    tmp_path: Path, victims: Callable[[], list[int]], moment: int
) -> None:
    """The supervisor lives on, so it is also what notices."""
    run = f"run_{victims.__name__}{moment}"
    lock = tmp_path / "it.warden"
    running = anyio.Event()

    async def start() -> None:
        spawn = Spawn(run, ("/bin/sh", "-c", HARNESS), {"CAPSULE_RUN": run}, "/")
        # It may be in the middle of the start.
        with suppress(HostError):
            await warden.spawn(spawn, 0, 2, 2)
        running.set()

    async with open_warden(str(lock), str(tmp_path / "it.sock.warden")) as warden:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(start)
            with anyio.move_on_after(moment * LAST_MOMENT_SECONDS / OTHER_MOMENTS):
                await anyio.sleep_forever()
            for victim in victims():
                os.kill(victim, signal.SIGKILL)
            await running.wait()

    wait_unlocked(lock)
    assert processes_of(run) == []


def kill_after(supervisor: int, seconds: float) -> None:
    """SIGKILL *supervisor* in the given moment of its life, and wait until it is gone."""
    life = os.pidfd_open(supervisor)
    with closing_fd(life):
        select.select([life], [], [], seconds)
        signal.pidfd_send_signal(life, signal.SIGKILL)
        select.select([life], [], [])


def wait_unlocked(path: Path) -> None:
    """Wait until nobody has the lock on *path*: then every tree is buried."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    with closing_fd(lock):
        fcntl.fcntl(lock, fcntl.F_OFD_SETLKW, struct.pack("hhqqi0q", fcntl.F_WRLCK, 0, 0, 0, 0))


@contextmanager
def closing_fd(descriptor: int) -> Generator[None]:
    try:
        yield
    finally:
        os.close(descriptor)
