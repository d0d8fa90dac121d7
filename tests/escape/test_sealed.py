"""A run with a root, a network and processes of its own: what it finds there, and what it does not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace

from capsule_runtime import HostError
from capsule_runtime.host import process as host_process
from capsule_runtime.host.machine import find_machine
from capsule_runtime.host.process import Exit
from capsule_runtime.host.sweep import children
from support.cell import CANARY, Cell, open_cell, read_all
from support.processes import caged_by, parent_of, processes_of

pytestmark = pytest.mark.usefixtures("namespaces")

READS = """
import sys
try:
    print(open(sys.argv[1]).read())
except OSError as refusal:
    print(refusal.strerror)
"""
WRITES = """
import sys
try:
    open(sys.argv[1], "w").close()
    print("done")
except OSError as refusal:
    print(refusal.strerror)
"""
WAITS = """
import os, signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
os.write(1, b"ready")
signal.sigwait([signal.SIGINT])
os.write(1, b"heard")
os._exit(5)
"""
DETACHES = """
import os, signal
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        while True:
            signal.pause()
"""

PAUSES = "import signal; signal.pause()"
CGROUPS = "print(*sorted({line.rsplit(':', 1)[1].strip() for line in open('/proc/self/cgroup')}))"
WITHOUT_BIRTHS = """
import runpy, sys
sys.path.append({folder!r})
import linux
linux.CLONE_INTO_CGROUP = 1 << 63
runpy.run_path({folder!r} + "/warden.py", run_name="__main__")
"""


INIT_IDLER_AND_HARNESS = 3


def below(pid: int) -> list[int]:
    """Return all that *pid* has started, and what that has."""
    found = children(pid)
    return found + [one for child in found for one in below(child)]


def levels_of(pid: int) -> int:
    """Return in how many nested namespaces of processes *pid* has a number; 0 when it is gone."""
    with suppress(FileNotFoundError, ProcessLookupError):
        status = Path(f"/proc/{pid}/status").read_text()
        return len(status.partition("NSpid:")[2].partition("\n")[0].split())
    return 0


def command_of(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


async def test_what_lies_outside_is_not_there(cell: Cell) -> None:
    told = [await cell.tries(READS, walls, str(cell.secret)) for walls in (None, cell.sealed())]

    assert told == [f"{CANARY}\n", "No such file or directory\n"]


@pytest.mark.parametrize("path", ["/etc/shadow", "/boot", "/srv", "/run", "/sys/kernel"])
async def test_the_rest_of_the_machine_is_not_there(cell: Cell, path: str) -> None:
    code = "import os, sys; print(os.path.lexists(sys.argv[1]))"

    told = [await cell.tries(code, walls, path) for walls in (None, cell.sealed())]

    assert told == ["True\n", "False\n"]


@pytest.mark.parametrize(
    "path",
    [
        "/x",
        "/usr/x",
        "/etc/passwd",
        "/dev/x",
        "/proc/sys/kernel/core_pattern",
        "/proc/sys/kernel/modprobe",
        "/proc/sysrq-trigger",
        "/.capsule/x",
    ],
)
async def test_nothing_of_the_root_can_be_written(cell: Cell, path: str) -> None:
    told = await cell.tries(WRITES, cell.sealed(), path)

    assert told != "done\n"


async def test_what_is_made_in_the_work_directory_is_the_callers(cell: Cell) -> None:
    told = await cell.tries("open('made', 'w').close(); print('done')", cell.sealed())

    made = (cell.workdir / "made").stat()
    assert told == "done\n"
    assert (made.st_uid, made.st_gid) == (os.getuid(), os.getgid())


async def test_a_work_directory_to_read_is_read(cell: Cell) -> None:
    (cell.workdir / "file").write_text("words")
    (cell.workdir / "file").chmod(0o600)
    walls = cell.sealed("ro")

    told = [await cell.tries(READS, walls, "file"), await cell.tries(WRITES, walls, "file")]

    assert told[0] == "words\n"
    assert told[1] != "done\n"


async def test_nobody_in_it_is_root(cell: Cell) -> None:
    code = "import os; print(0 in (*os.getresuid(), *os.getresgid(), *os.getgroups()))"

    assert await cell.tries(code, cell.sealed()) == "False\n"


async def test_it_has_no_network_but_its_own(cell: Cell) -> None:
    code = "import socket; print([name for _, name in socket.if_nameindex()])"
    listed = "print([line.split(':')[0].strip() for line in open('/proc/net/dev') if ':' in line])"

    assert await cell.tries(listed, cell.sealed()) == "['lo']\n"
    assert "['lo']" not in await cell.tries(code, None)


async def test_it_sees_no_processes_but_its_own(cell: Cell) -> None:
    code = "import os; print(sum(name.isdigit() for name in os.listdir('/proc')) < 5)"

    assert await cell.tries(code, cell.sealed()) == "True\n"
    assert await cell.tries(code, None) == "False\n"


@pytest.mark.parametrize(
    "making",
    [
        "open('made', 'w').close(); os.chmod('made', 0o4755)",
        "file = os.open('made', os.O_CREAT | os.O_WRONLY, 0o4755)",
        "os.mknod('made', 0o106755)",
        "os.fchmod(os.open('made', os.O_CREAT | os.O_WRONLY), 0o6755)",
    ],
)
async def test_no_program_is_made_that_runs_as_the_caller(cell: Cell, making: str) -> None:
    told = await cell.tries(f"import os\nos.umask(0)\n{making}", cell.sealed())

    made = cell.workdir / "made"
    assert "PermissionError" in told
    assert not made.exists() or not made.stat().st_mode & 0o6000


async def test_an_interrupt_reaches_the_harness_alone(cell: Cell) -> None:
    async with cell.started(WAITS, cell.sealed()) as (tree, output):
        await anyio.wait_readable(output)
        assert os.read(output, 5) == b"ready"
        tree.signal(signal.SIGINT)
        heard = await read_all(output)
        exit = await tree.exited()

    assert heard == b"heard"
    assert exit == Exit(5, None)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
async def test_a_death_by_a_signal_is_told_as_one(cell: Cell, number: int) -> None:
    code = f"import os; os.kill(os.getpid(), {number})"
    async with cell.started(code, cell.sealed()) as (tree, _):
        exit = await tree.exited()

    assert exit == Exit(None, number)


async def test_the_pid_on_record_is_the_one_outside(cell: Cell) -> None:
    async with cell.started(WAITS, cell.sealed()) as (tree, output):
        await anyio.wait_readable(output)
        command = command_of(tree.pid)

    assert b"signal.sigwait" in command


async def test_what_detaches_itself_ends_with_the_harness(cell: Cell) -> None:
    async with cell.started(DETACHES, cell.sealed()) as (tree, _):
        burial = await tree.buried()

    assert burial.left == 0
    assert processes_of(tree.run) == []


async def test_a_work_directory_that_has_become_a_link_is_refused(cell: Cell) -> None:
    walls = cell.sealed()
    cell.workdir.rmdir()
    cell.workdir.symlink_to(cell.secret.parent)

    with pytest.raises(HostError) as refused:
        await cell.tries("print('ran')", walls)

    assert refused.value.code == "E-HOST-034"


async def test_the_cgroups_of_a_run_have_no_names_inside(cell: Cell) -> None:
    told = await cell.tries(CGROUPS, cell.sealed())

    assert told == "/\n"


@pytest.fixture
def unified() -> str:
    """The folder of the unified hierarchy where cgroups can be made, with limits or without."""
    found = find_machine().cgroups.kill
    if not found:
        pytest.skip("no cgroup of the unified hierarchy can be made here")
    return found


def unified_cgroup_of(pid: int) -> str:
    return Path(f"/proc/{pid}/cgroup").read_text().splitlines()[-1].rpartition("/")[2]


async def cgroup_of_harness(cell: Cell, folder: str) -> tuple[str, str]:
    """Return the unified cgroup of a harness that is to be in one of *folder*, and its own name."""
    walls = cell.sealed()
    planned = replace(walls, limits=replace(walls.limits, groups=((folder, ()),)))
    async with cell.started(PAUSES, planned) as (tree, _):
        return unified_cgroup_of(tree.pid), tree.cage


async def test_a_harness_is_born_in_the_unified_cgroup(cell: Cell, unified: str) -> None:
    found, own = await cgroup_of_harness(cell, unified)

    assert found == own


async def test_where_nobody_is_born_in_a_cgroup_it_is_entered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unified: str
) -> None:
    wrapper = tmp_path / "wrapper.py"
    wrapper.write_text(WITHOUT_BIRTHS.format(folder=str(Path(host_process.__file__).parent)))
    command = (sys.executable, "-I", "-S", str(wrapper))
    monkeypatch.setattr("capsule_runtime.host.warden_process._COMMAND", command)
    async with open_cell() as cell:
        found, own = await cgroup_of_harness(cell, unified)

    assert found == own


async def test_without_landlock_all_that_a_harness_could_take_over_is_in_its_cgroups(
    cell: Cell, cgroups: str
) -> None:
    machine = replace(find_machine(), landlock_abi=0)
    async with cell.started(PAUSES, cell.sealed(machine=machine)) as (tree, _):
        own = levels_of(os.getpid())
        inside = {pid for pid in below(parent_of(tree.pid)) if levels_of(pid) > own}
        caged = set(caged_by(os.getpid()))

    assert len(inside) == INIT_IDLER_AND_HARNESS
    assert inside <= caged, cgroups


async def test_a_root_that_cannot_be_made_starts_nothing(cell: Cell) -> None:
    walls = cell.sealed()
    assert walls.seal is not None
    broken = replace(walls, seal=replace(walls.seal, argv=("/bin/false",)))

    with pytest.raises(HostError, match="bubblewrap ended without a word") as refused:
        await cell.tries("print('ran')", broken)

    assert refused.value.code == "E-HOST-034"


@pytest.fixture
def mounting(namespaces: str) -> None:
    if namespaces != "rootns":
        pytest.skip("only root mounts")


@contextmanager
def mounted(kind: str, place: Path) -> Generator[None]:
    subprocess.run(["mount", "-t", kind, "none", str(place)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", str(place)], check=True)


@pytest.mark.usefixtures("mounting")
async def test_what_is_mounted_in_the_work_directory_is_there(cell: Cell) -> None:
    inner = cell.workdir / "inner"
    inner.mkdir()
    with mounted("tmpfs", inner):
        (inner / "file").write_text("words")
        told = await cell.tries(READS, cell.sealed(), "inner/file")

    assert told == "words\n"


@pytest.mark.usefixtures("mounting")
async def test_a_file_system_that_cannot_shift_owners_is_named_with_what_helps(cell: Cell) -> None:
    with mounted("ramfs", cell.workdir), pytest.raises(HostError) as refused:
        await cell.tries("print('ran')", cell.sealed())

    assert refused.value.code == "E-HOST-034"
    assert str(cell.workdir) in refused.value.message
    assert "ext4" in refused.value.hint


@pytest.mark.usefixtures("mounting")
async def test_a_folder_of_the_caller_and_another_s_group_can_be_written(cell: Cell) -> None:
    shared = cell.workdir / "shared"
    shared.mkdir()
    os.chown(shared, 0, 12345)
    shared.chmod(0o2775)

    told = await cell.tries(WRITES, cell.sealed(), "shared/file")

    made = (shared / "file").stat()
    assert told == "done\n"
    assert (made.st_uid, made.st_gid) == (0, 12345)


@pytest.mark.usefixtures("mounting")
async def test_what_belongs_to_others_in_the_work_directory_stays_theirs(cell: Cell) -> None:
    theirs = cell.workdir / "theirs"
    theirs.write_text("words")
    os.chown(theirs, 12345, 12345)
    theirs.chmod(0o644)

    told = [await cell.tries(deed, cell.sealed(), "theirs") for deed in (READS, WRITES)]

    assert told == ["words\n", "Permission denied\n"]
