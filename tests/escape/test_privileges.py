"""Whom a harness can signal and look into, and what rights it can get."""

from __future__ import annotations

import os
import pty
import resource
import shutil
import signal
import socket
import subprocess
from collections.abc import Generator
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace

from capsule_runtime import HostError
from capsule_runtime.host.scoping import find_scopes
from support.cell import CANARY, Cell, read_all
from support.processes import parent_of

KILLS_ITS_WATCHERS = """
import os, signal
burier = os.getppid()
with open(f"/proc/{burier}/stat") as file:
    warden = int(file.read().rpartition(")")[2].split()[1])
for pid in (burier, warden):
    for number in (signal.SIGSTOP, signal.SIGKILL):
        try:
            os.kill(pid, number)
        except PermissionError:
            print("refused", end=" ", flush=True)
"""
LOOKS_INTO = """
import sys
for name in ("environ", "maps", "cwd/x", "root/x", "fd/0"):
    try:
        print(open(f"/proc/{sys.argv[1]}/{name}", "rb").read())
    except OSError as exc:
        print(type(exc).__name__)
"""
PAUSES = "import os, signal; os.write(1, b'ready'); signal.pause()"
CLEAN = "0" * 16


@pytest.fixture
def victim() -> Generator[subprocess.Popen[bytes]]:
    """A process of the same user that is none of the harness's business."""
    env = {"KEY": CANARY}
    with subprocess.Popen(["/bin/sleep", "1000"], env=env) as process:
        yield process
        process.kill()


def status_of(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


@pytest.mark.usefixtures("scoped")
async def test_a_harness_cannot_kill_what_watches_it(cell: Cell) -> None:
    async with cell.started(KILLS_ITS_WATCHERS + PAUSES, cell.walls()) as (tree, output):
        said = b""
        while not said.endswith(b"ready"):
            await anyio.wait_readable(output)
            said += os.read(output, 1000)
        burier = parent_of(tree.pid)
        states = [status_of(pid)["State"][0] for pid in (burier, parent_of(burier))]

    assert said == b"refused " * 4 + b"ready"
    assert set(states) <= {"S", "R"}
    assert not (await tree.buried()).lost


async def test_without_walls_a_harness_can_kill_what_watches_it(cell: Cell) -> None:
    code = "import os, signal; os.kill(os.getppid(), signal.SIGKILL); signal.pause()"

    async with cell.started(code, None) as (tree, _):
        burial = await tree.buried()

    assert burial.lost


@pytest.mark.usefixtures("scoped")
async def test_signalling_a_process_of_its_user(
    cell: Cell, victim: subprocess.Popen[bytes]
) -> None:
    code = "import os, sys; os.kill(int(sys.argv[1]), 15)"

    behind = await cell.tries(code, cell.walls(), str(victim.pid))
    lived = victim.poll() is None
    await cell.tries(code, None, str(victim.pid))

    assert lived
    assert "PermissionError" in behind
    assert victim.wait(10) == -signal.SIGTERM


@pytest.mark.usefixtures("landlock")
async def test_looking_into_a_process_of_its_user(
    cell: Cell, victim: subprocess.Popen[bytes]
) -> None:
    without = await cell.tries(LOOKS_INTO, None, str(victim.pid))
    behind = await cell.tries(LOOKS_INTO, cell.walls(), str(victim.pid))

    assert CANARY in without
    assert behind.split() == ["PermissionError"] * 5


@pytest.mark.usefixtures("scoped")
async def test_a_socket_with_an_abstract_name(cell: Cell) -> None:
    code = "import socket, sys; socket.socket(1).connect(chr(0) + sys.argv[1]); print('reached')"
    name = cell.folder.name
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("\0" + name)
        listener.listen()

        without = await cell.tries(code, None, name)
        behind = await cell.tries(code, cell.walls(), name)

    assert without == "reached\n"
    assert "PermissionError" in behind


async def test_capabilities_are_gone_and_stay_gone(cell: Cell) -> None:
    async with cell.started(PAUSES, cell.walls()) as (tree, output):
        await anyio.wait_readable(output)
        found = status_of(tree.pid)
    async with cell.started(PAUSES, None) as (tree, output):
        await anyio.wait_readable(output)
        without = status_of(tree.pid)

    sets = ["CapInh", "CapPrm", "CapEff", "CapAmb"]
    if os.geteuid() == 0:
        sets.append("CapBnd")
        assert without["CapEff"] != CLEAN
    assert [found[name] for name in sets] == [CLEAN] * len(sets)
    assert (found["NoNewPrivs"], without["NoNewPrivs"]) == ("1", "0")


async def test_root_without_capabilities_cannot_pass_by_rights(cell: Cell) -> None:
    if os.geteuid() != 0:
        pytest.skip("the tests do not run as root")
    closed = cell.workdir / "closed"
    closed.write_text(CANARY)
    os.chown(closed, 12345, 12345)
    closed.chmod(0o600)
    code = "print(open('closed').read())"

    assert CANARY in await cell.tries(code, None)
    assert "PermissionError" in await cell.tries(code, cell.walls())


async def test_a_setuid_program_gives_nothing(cell: Cell) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can make one")
    program = cell.workdir / "id"
    shutil.copy("/usr/bin/id", program)
    os.chown(program, 12345, 12345)
    program.chmod(0o4755)
    code = "import os; os.execv('./id', ['id', '-u'])"

    assert (await cell.tries(code, None)).strip() == "12345"
    assert (await cell.tries(code, cell.walls())).strip() == "0"


async def test_limits_cannot_be_raised(cell: Cell) -> None:
    code = """
import resource
for number in (resource.RLIMIT_NOFILE, resource.RLIMIT_CORE, resource.RLIMIT_FSIZE):
    soft, hard = resource.getrlimit(number)
    try:
        resource.setrlimit(number, (hard + 1, hard + 1))
    except (ValueError, OSError):
        print("refused", hard)
"""
    walls = cell.walls()
    planned = dict(walls.limits.rlimits)

    said = await cell.tries(code, walls)

    wanted = (planned["NOFILE"], planned["CORE"], planned["FSIZE"])
    assert said.splitlines() == [f"refused {limit}" for limit in wanted]


async def test_more_files_than_it_may_have_open(cell: Cell) -> None:
    code = "files = [open('/dev/null') for _ in range(200)]; print('opened')"

    assert await cell.tries(code, None) == "opened\n"
    assert "Too many open files" in await cell.tries(code, cell.walls())


async def test_no_limit_is_above_what_was_inherited(cell: Cell) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    code = "import resource; print(resource.getrlimit(resource.RLIMIT_CPU)[1])"
    walls = cell.walls()

    assert dict(walls.limits.rlimits)["NOFILE"] <= hard
    assert await cell.tries(code, walls) == f"{dict(walls.limits.rlimits)['CPU']}\n"


async def test_nothing_is_inherited_but_stdio(cell: Cell) -> None:
    code = "import os; print(sorted(map(int, os.listdir('/proc/self/fd')))[:-1], end='')"
    secret = os.open(cell.secret, os.O_RDONLY)
    os.set_inheritable(secret, True)
    try:
        assert await cell.tries(code, cell.walls()) == "[0, 1, 2]"
    finally:
        os.close(secret)


@pytest.mark.usefixtures("scoped")
async def test_a_harness_still_ends_what_it_started(cell: Cell) -> None:
    code = """
import os, signal
child = os.fork()
if child == 0:
    signal.pause()
os.kill(child, signal.SIGTERM)
print(os.waitstatus_to_exitcode(os.wait()[1]))
"""
    assert await cell.tries(code, cell.walls()) == "-15\n"


async def test_walls_that_are_not_as_planned_keep_the_harness_from_running(cell: Cell) -> None:
    walls = replace(cell.walls(), landlock_abi=99)

    with pytest.raises(HostError, match=r"Landlock ABI .*, planned 99") as refused:
        async with cell.started("open('ran', 'w')", walls) as (_, output):
            await read_all(output)

    assert refused.value.code == "E-HOST-030"
    assert not (cell.workdir / "ran").exists()


async def test_a_scoped_run_has_terminals_of_its_own_where_its_user_is_its_own(cell: Cell) -> None:
    if why := find_scopes().why:
        pytest.skip(why)
    master, terminal = pty.openpty()
    name = os.ttyname(terminal)
    code = f"""
import os, pty
pid, own = pty.fork()
if pid == 0:
    print("on a terminal", os.isatty(0), flush=True)
    os._exit(0)
print(os.read(own, 100).decode().strip())
try:
    os.open({name!r}, os.O_WRONLY)
    print("opened")
except OSError:
    print("refused")
"""
    try:
        said = await cell.tries(code, cell.scoped())
    finally:
        os.close(master)
        os.close(terminal)

    if os.geteuid() == 0:
        assert said.split("\n")[0] == "on a terminal True"
    assert "refused" in said.split() or "PermissionError" in said
    assert "opened" not in said
