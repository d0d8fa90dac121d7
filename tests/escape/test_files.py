"""What a harness can open, change and see of files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from capsule_runtime import ContainmentError
from capsule_runtime.core.grants import Grants
from support.cell import CANARY, Cell

READS = "import sys; print(open(sys.argv[1]).read(), end='')"
WRITES = "import sys; open(sys.argv[1], 'w').write('was here')"
ROUTES = {
    "absolute": "{secret}",
    "dots": "{work}/../outside/secret",
    "link": "{work}/link",
    "proc root": "/proc/self/root{secret}",
    "proc cwd": "/proc/self/cwd/../outside/secret",
    "burier's root": "/proc/{burier}/root{secret}",
}
READS_ROUTE = """
import os, sys
path = sys.argv[1].replace("{burier}", str(os.getppid()))
print(open(path).read(), end="")
"""
DEEDS = {
    "create": "open(sys.argv[1] + '.new', 'w').close()",
    "append": "open(sys.argv[1], 'a').write('x')",
    "truncate": "os.truncate(sys.argv[1], 0)",
    "unlink": "os.unlink(sys.argv[1])",
    "rename": "os.rename(sys.argv[1], sys.argv[1] + '.moved')",
    "rename in": "os.rename(sys.argv[1], 'mine')",
    "link in": "os.link(sys.argv[1], 'mine')",
    "replace": "open('mine', 'w').close(); os.rename('mine', sys.argv[1])",
    "make a folder": "os.mkdir(sys.argv[1] + '.folder')",
    "make a link": "os.symlink('x', sys.argv[1] + '.link')",
    "make a fifo": "os.mkfifo(sys.argv[1] + '.fifo')",
}


def seen(folder: Path) -> dict[str, bytes]:
    """Return what a folder of small files holds."""
    return {
        path.name: path.read_bytes() if path.is_file() else b"" for path in sorted(folder.iterdir())
    }


@pytest.mark.usefixtures("landlock")
@pytest.mark.parametrize("route", ROUTES)
async def test_reading_a_file_outside(cell: Cell, route: str) -> None:
    (cell.workdir / "link").symlink_to(cell.secret)
    path = ROUTES[route].replace("{secret}", str(cell.secret)).replace("{work}", str(cell.workdir))

    without = await cell.tries(READS_ROUTE, None, path)
    behind = await cell.tries(READS_ROUTE, cell.walls(), path)

    assert without == CANARY
    assert CANARY not in behind
    assert "PermissionError: [Errno 13]" in behind


@pytest.mark.usefixtures("landlock")
@pytest.mark.parametrize("deed", DEEDS)
async def test_changing_what_is_outside(cell: Cell, deed: str) -> None:
    code, outside = f"import os, sys; {DEEDS[deed]}", cell.secret.parent
    before = seen(outside), cell.secret.stat().st_nlink

    behind = await cell.tries(code, cell.walls(), str(cell.secret))
    after = seen(outside), cell.secret.stat().st_nlink
    await cell.tries(code, None, str(cell.secret))

    assert "Error" in behind
    assert after == before
    assert (seen(outside), len(seen(cell.workdir))) != (before[0], 0) or deed == "link in"


@pytest.mark.usefixtures("landlock")
async def test_a_work_directory_that_is_only_to_be_read(cell: Cell) -> None:
    note = cell.workdir / "note"
    note.write_text("kept")
    path = str(note)

    read = await cell.tries(READS, cell.walls("ro"), path)
    behind = await cell.tries(WRITES, cell.walls("ro"), path)
    kept = note.read_text()
    await cell.tries(WRITES, cell.walls("rw"), path)

    assert (read, kept) == ("kept", "kept")
    assert "PermissionError" in behind
    assert note.read_text() == "was here"


@pytest.mark.usefixtures("landlock")
async def test_what_was_granted_is_open_and_no_more(cell: Cell) -> None:
    other = cell.folder / "other"
    other.mkdir()
    grants = Grants(read=(str(cell.secret.parent),), write=(str(other),))

    read = await cell.tries(READS, cell.walls(grants=grants), str(cell.secret))
    refused = await cell.tries(WRITES, cell.walls(grants=grants), str(cell.secret))
    await cell.tries(WRITES, cell.walls(grants=grants), str(other / "new"))

    assert read == CANARY
    assert "PermissionError" in refused
    assert (other / "new").read_text() == "was here"


@pytest.mark.usefixtures("landlock")
async def test_moving_files_between_its_own_folders(cell: Cell) -> None:
    code = "import os; open('a', 'w').close(); os.rename('a', os.environ['HOME'] + '/a')"

    await cell.tries(code, cell.walls())

    assert (cell.home / "a").exists()


@pytest.mark.usefixtures("landlock")
async def test_names_and_sizes_can_be_seen_as_the_report_says(cell: Cell) -> None:
    code = "import os, sys; print(os.stat(sys.argv[1]).st_size, end='')"
    walls = cell.walls()

    assert await cell.tries(code, walls, str(cell.secret)) == str(len(CANARY))
    assert walls.report.axes.fs == "none (metadata)"


async def test_device_nodes_cannot_be_made(cell: Cell) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root could")
    code = "import os, stat; os.mknod('disk', 0o600 | stat.S_IFBLK, os.makedev(7, 0))"

    behind = await cell.tries(code, cell.walls())
    held = not (cell.workdir / "disk").exists()
    await cell.tries(code, None)

    assert held
    assert "PermissionError" in behind
    assert (cell.workdir / "disk").is_block_device()


async def test_files_are_for_its_owners_eyes(cell: Cell) -> None:
    await cell.tries("open('mine', 'w').close()", cell.walls())

    assert (cell.workdir / "mine").stat().st_mode & 0o777 == 0o600


async def test_the_state_and_logins_cannot_be_granted(cell: Cell) -> None:
    for path in (str(cell.folder), str(cell.folder / "state" / "runs")):
        with pytest.raises(ContainmentError, match=r"it would open .*state"):
            cell.walls(grants=Grants(read=(path,)))
