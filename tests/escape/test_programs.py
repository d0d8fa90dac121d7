"""What must go on working behind the walls: programs as people install them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Generator
from pathlib import Path

import pytest
from msgspec.structs import replace

from capsule_runtime import ContainmentError, Outcome
from capsule_runtime.core.grants import Grants
from capsule_runtime.core.sandbox_plan import plan_walls
from capsule_runtime.host.footprint import program_of
from capsule_runtime.host.ground import git_folders
from capsule_runtime.host.machine import find_machine
from capsule_runtime.supervisor import open_supervisor
from support.cell import USUAL, Cell, read_all
from support.harness import write_capsule
from support.logs import Log
from support.supervised import ended, request_for

ANSWER = '{"type":"turn-end","result":"hello"}'
GIT = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}


@pytest.fixture
def home() -> Generator[Path]:
    """A folder in the caller's home: closed, but for what programs in it need."""
    folder = Path(tempfile.mkdtemp(prefix="installed-", dir=Path.home()))
    yield folder
    shutil.rmtree(folder)


def executable(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


async def run_of(folder: Path, *command: str, path: Path | None = None) -> Log:
    """Return the log of a harness that is *command*, outside of the folders that are shared.

    The caller has *path* on the search path.
    """
    env = {"PATH": f"{path}:{os.environ['PATH']}"} if path else {}
    capsule = write_capsule(folder / "capsule", command)
    workdir = folder / "work"
    workdir.mkdir()
    async with open_supervisor(folder / "state") as supervisor:
        request = request_for(capsule, workdir=workdir, env=env)
        return await ended(await supervisor.start(request))


async def test_a_python_agent_of_a_virtual_environment(home: Path) -> None:
    venv.create(home / "venv", symlinks=True)
    code = f"import json, ssl, sys; input(); print({ANSWER!r})"

    log = await run_of(home, "python", "-c", code, path=home / "venv/bin")

    assert log.final.response == "hello"


async def test_a_python_script_that_a_virtual_environment_installed(home: Path) -> None:
    venv.create(home / "venv", symlinks=True)
    library = next((home / "venv/lib").glob("python*/site-packages"))
    (library / "agent.py").write_text(f"def main():\n    input()\n    print({ANSWER!r})\n")
    script = f"#!{home}/venv/bin/python\nimport agent\nagent.main()\n"
    executable(home / "venv/bin/agent", script)
    (home / "bin").mkdir()
    (home / "bin/agent").symlink_to(home / "venv/bin/agent")

    log = await run_of(home, "agent", path=home / "bin")

    assert log.final.response == "hello"


async def test_a_command_of_node(home: Path) -> None:
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    package = home / "node/lib/node_modules/agent"
    code = "#!/usr/bin/env node\nrequire('./words')\n"
    executable(package / "cli.js", code)
    (package / "words.js").write_text(f"console.log('{ANSWER}')\n")
    (home / "node/bin").mkdir()
    (home / "node/bin/agent").symlink_to("../lib/node_modules/agent/cli.js")

    log = await run_of(home, "agent", path=home / "node/bin")

    assert log.final.response == "hello"


async def test_a_command_of_node_that_was_installed_into_a_folder_is_found_by_a_shell(
    home: Path,
) -> None:
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    packages = home / "tools/node_modules"
    executable(packages / "agent/cli.js", "#!/usr/bin/env node\nrequire('agent-linux')\n")
    executable(packages / "agent-linux/index.js", f"console.log('{ANSWER}')\n")
    (home / "tools/secret").write_text("canary")
    (packages / ".bin").mkdir()
    (packages / ".bin/agent").symlink_to("../agent/cli.js")
    look = f"cat {home}/tools/secret >&2; exec agent"

    log = await run_of(home, "sh", "-c", look, path=packages / ".bin")

    assert log.final.response == "hello"
    if not home.is_relative_to("/tmp"):
        [stderr] = (home / "state").rglob("stderr.log")
        assert "Permission denied" in stderr.read_text() and "canary" not in stderr.read_text()


async def test_a_shell_script_of_the_capsule(home: Path) -> None:
    capsule = home / "capsule"
    log = await run_of(
        home, "sh", "-c", f"read task; cat {capsule}/capsule.toml >&2; echo '{ANSWER}'"
    )

    assert log.final.response == "hello"
    [stderr] = (home / "state").rglob("stderr.log")
    assert stderr.read_text().startswith('name = "test"')


async def test_what_lies_beside_the_program_is_closed(home: Path) -> None:
    if home.is_relative_to("/tmp"):
        pytest.skip("this home lies in a folder that is shared")
    (home / "secret").write_text("canary")

    log = await run_of(home, "sh", "-c", f"read task; cat {home}/secret && echo '{ANSWER}'")

    assert log.record.outcome is Outcome.FAILED
    assert "Permission denied" in log.final.message
    assert b"canary" not in log.body


async def test_what_a_capsule_says_of_its_program_opens_nothing(home: Path) -> None:
    """Neither a shebang nor a link nor a file such as a virtual environment has."""
    if home.is_relative_to("/tmp"):
        pytest.skip("this home lies in a folder that is shared")
    tool = executable(home / "project/bin/tool", "#!/bin/sh\n")
    (home / "project/secret").write_text("canary")
    (home / "private").mkdir()
    (home / "private/diary").write_text("canary")
    script = f"#!/usr/bin/env -S -u {tool} /bin/sh\ncat {home}/project/secret {home}/private/diary"
    executable(home / "capsule/bin/agent", script)
    (home / "capsule/pyvenv.cfg").write_text(f"home = {home}/private/bin\n")

    capsule = home / "capsule"
    (capsule / "capsule.toml").write_text(
        'name = "sly"\n[harness]\ndriver = "jsonl"\ncommand = ["./bin/agent"]\n'
    )
    (home / "work").mkdir()
    async with open_supervisor(home / "state") as supervisor:
        request = request_for(capsule, workdir=home / "work")
        log = await ended(await supervisor.start(request))

    assert b"canary" not in log.body
    assert "Permission denied" in log.final.message


async def test_a_program_in_the_callers_home_is_granted_or_on_the_path(home: Path) -> None:
    if home.is_relative_to("/tmp"):
        pytest.skip("this home lies in a folder that is shared")
    tool = executable(home / "project/bin/tool", f"#!/bin/sh\nread task; echo '{ANSWER}'\n")

    with pytest.raises(ContainmentError) as refused:
        await run_of(home, str(tool))

    assert refused.value.code == "E-CAP-004"
    assert str(tool) in refused.value.message


@pytest.mark.parametrize("first", ["#!/dev/ptmx\n", "#!/usr/bin/python3\0x\n", "#!\n", "#!   \n"])
def test_no_first_line_of_a_script_hangs_or_breaks_the_plan(tmp_path: Path, first: str) -> None:
    script = executable(tmp_path / "agent", first)

    assert program_of(str(script), {"PATH": str(tmp_path)}).files[0] == str(script)


async def test_git_in_a_worktree_whose_repository_is_elsewhere(cell: Cell) -> None:
    repository = cell.folder / "repository"
    git(cell.folder, "init", "-q", str(repository))
    git(repository, "commit", "-q", "--allow-empty", "-m", "the first")
    shutil.rmtree(cell.workdir)
    git(repository, "worktree", "add", "-q", str(cell.workdir))

    said = await git_log(cell)

    assert said == "the first\n"


async def test_git_below_the_root_of_a_repository(cell: Cell) -> None:
    git(cell.folder, "init", "-q", ".")
    git(cell.folder, "commit", "-q", "--allow-empty", "-m", "of the parent")

    said = await git_log(cell)

    assert said == "of the parent\n"


async def test_a_git_file_opens_nothing_that_does_not_name_it_too(cell: Cell) -> None:
    """A harness may write one, and must not choose what its next run can read."""
    (cell.workdir / ".git").write_text(f"gitdir: {cell.secret.parent}\n")

    assert list(git_folders(cell.workdir)) == []


def git(folder: Path, *words: str) -> None:
    who = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    subprocess.run(["git", *who, *words], cwd=folder, check=True, env={**os.environ, **GIT})


async def git_log(cell: Cell) -> str:
    program = "/usr/bin/git"
    ground = replace(
        cell.ground(),
        program=program_of(program, {"PATH": "/usr/bin"}),
        git=tuple(git_folders(cell.workdir)),
    )
    walls = plan_walls(ground, Grants(), USUAL, find_machine())
    argv = (program, "-c", "safe.directory=*", "log", "--format=%s")
    async with cell.launched(argv, walls, **GIT) as (_, output):
        return (await read_all(output)).decode()


def test_the_footprint_of_a_program_by_links_and_interpreters(tmp_path: Path) -> None:
    executable(tmp_path / "prefix/bin/interpreter", "")
    script = executable(tmp_path / "app/tool", f"#!{tmp_path}/link\n")
    (tmp_path / "link").symlink_to("prefix/bin/interpreter")
    (tmp_path / "name").symlink_to(script)

    found = program_of(str(tmp_path / "name"), {"PATH": str(tmp_path)})

    names = ("name", "app/tool", "link", "prefix/bin/interpreter")
    assert set(found.files) >= {str(tmp_path / name) for name in names}
    assert found.prefixes == (str(tmp_path / "prefix"),)


def test_the_interpreter_of_these_tests_is_found_with_its_library() -> None:
    found = program_of(sys.executable, {})

    assert sys.prefix in found.prefixes
    assert sys.base_prefix in {os.path.realpath(prefix) for prefix in found.prefixes}
