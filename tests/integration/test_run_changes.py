"""The result of a run says what it changed in the work directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from capsule_runtime.supervisor import open_supervisor
from support.harness import shell_capsule
from support.supervised import request_for

pytestmark = pytest.mark.anyio

CHANGES = """
read -r task
echo more > new; mkdir -p .vscode; echo '{}' > .vscode/tasks.json
echo '{"type":"turn-end","result":"done"}'
"""


async def test_a_copy_has_its_changes_and_warnings_in_the_result(tmp_path: Path) -> None:
    capsule, workdir = shell_capsule(tmp_path / "capsule", CHANGES), tmp_path / "work"
    workdir.mkdir()
    async with open_supervisor(tmp_path / "state") as supervisor:
        wish = request_for(capsule, workdir=workdir, workdir_mode="copy")
        result = await (await supervisor.start(wish)).wait()

    assert result.changes is not None
    assert result.changes.tally is not None
    assert result.changes.tally.added == 2
    assert [it.path for it in result.changes.warned] == [".vscode/tasks.json"]
    assert result.awaits_apply
    assert not (workdir / "new").exists()


async def test_a_run_that_changed_nothing_awaits_nothing(tmp_path: Path) -> None:
    harness = 'read -r task\necho \'{"type":"turn-end","result":"done"}\'\n'
    capsule, workdir = shell_capsule(tmp_path / "capsule", harness), tmp_path / "work"
    workdir.mkdir()
    async with open_supervisor(tmp_path / "state") as supervisor:
        wish = request_for(capsule, workdir=workdir, workdir_mode="copy")
        result = await (await supervisor.start(wish)).wait()

    assert not result.awaits_apply
