"""A run whose burial proved nothing keeps its user; any other gives it back."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from capsule_runtime.burying import buried
from capsule_runtime.core.actions import Burial
from capsule_runtime.host import run_users
from capsule_runtime.host.namespaces import find_namespaces
from capsule_runtime.host.tree import Tree
from capsule_runtime.supervisor import open_supervisor
from support.harness import shell_capsule
from support.supervised import request_for

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root leases users"),
]

DONE = 'read -r task\necho \'{"type":"turn-end","result":"done"}\'\n'


@pytest.mark.parametrize(("left", "is_kept"), [(0, False), (1, True), (None, True)])
async def test_a_user_is_given_back_once_its_burial_is_proved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: int | None, is_kept: bool
) -> None:
    if why := find_namespaces().why:
        pytest.skip(why)
    released: list[int] = []

    def release(_: object, user: int) -> None:
        released.append(user)

    monkeypatch.setattr(run_users.RunUsers, "release", release)

    async def told(tree: Tree, trouble: Callable[[str], None]) -> Burial:
        await buried(tree, trouble)
        return Burial(0, left, 0)

    monkeypatch.setattr("capsule_runtime.attempt.buried", told)
    capsule, workdir = shell_capsule(tmp_path / "capsule", DONE), tmp_path / "work"
    workdir.mkdir()
    async with open_supervisor(tmp_path / "state") as supervisor:
        wish = request_for(capsule, workdir=workdir, containment="sealed")
        await (await supervisor.start(wish)).wait()

    assert (released == []) == is_kept
