"""Links that a harness may have left open nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from capsule_runtime.host.footprint import program_of
from capsule_runtime.host.written import leads_through
from support.command import Command


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """Return a work directory in which a harness has put links to a folder outside."""
    work, outside = tmp_path / "work", tmp_path / "outside"
    for folder in (work / "venv", outside / "bin"):
        folder.mkdir(parents=True)
    (work / "venv" / "bin").symlink_to(outside / "bin")
    (tmp_path / "to-work").symlink_to(work / "venv")
    (tmp_path / "round").symlink_to("round")
    return work


@pytest.mark.parametrize(
    ("path", "does"),
    [
        ("work", False),
        ("outside/bin", False),
        ("work/venv", True),
        ("work/venv/bin", True),
        ("to-work/bin", True),
        ("outside/../work/venv/bin", True),
        ("work/..", False),
        ("round/x", True),
    ],
)
def test_what_leads_through_a_written_folder(work: Path, path: str, does: bool) -> None:
    assert leads_through(str(work.parent / path), [str(work)]) == does


def test_a_program_by_a_harness_s_link_opens_nothing(work: Path) -> None:
    program = work.parent / "outside" / "bin" / "tool"
    # Not that of the system: it may lie in the installation that we run from.
    interpreter = work.parent / "outside" / "interpreter"
    interpreter.write_text("")
    program.write_text(f"#!{interpreter}\n")
    program.chmod(0o755)
    path = str(work / "venv" / "bin")

    opened = program_of(f"{path}/tool", {"PATH": path}, (str(work),))

    assert (opened.files, opened.prefixes) == ((), ())
    assert program_of(f"{path}/tool", {"PATH": path}).files != ()


# What is in the folder that a link leads to, and may be seen at its own name where it was opened.
LISTS = """
read task
ls "$(dirname "$0")/../outside" >/dev/null 2>&1 && seen=there || seen=hidden
echo '{"type":"turn-end","result":"'$seen'"}'
"""


def test_a_link_on_the_search_path_opens_nothing_to_a_run(work: Path) -> None:
    command = Command(work.parent)
    capsule = command.capsule(LISTS)
    command.env["PATH"] = f"{work}/venv/bin:{command.env['PATH']}"

    done = command("run", capsule, "--task", "x", "--workdir", str(work))

    assert done.out == "hidden\n", done.err
