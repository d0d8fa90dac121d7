"""Whether a folder can be shown to another user is tried, and what came of it is kept."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from capsule_runtime.host import shifting
from capsule_runtime.host.rights import may_mount
from capsule_runtime.host.shifting import why_not_shifted

pytestmark = pytest.mark.skipif(os.geteuid() != 0 or not may_mount(), reason="only root mounts")


@pytest.fixture(autouse=True)
def _forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shifting, "_found", {})


@pytest.fixture
def ramfs(tmp_path: Path) -> Generator[Path]:
    """Return a folder on a file system that cannot map owners."""
    place = tmp_path / "ramfs"
    place.mkdir()
    subprocess.run(["mount", "-t", "ramfs", "none", str(place)], check=True)
    yield place
    subprocess.run(["umount", str(place)], check=True)


def saying(words: str) -> Callable[[list[str]], str]:
    """Return what stands for a trial that says *words*."""

    def said(_: list[str]) -> str:
        return words

    return said


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Be as a new process, which can try nothing."""
    monkeypatch.setattr(shifting, "_found", {})
    monkeypatch.setattr(shifting, "said", saying("it was tried again"))


def test_what_can_be_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = tmp_path / "state"
    first = why_not_shifted(str(tmp_path), state)
    forget(monkeypatch)

    assert (first, why_not_shifted(str(tmp_path), state)) == ("", "")


def test_what_cannot_be_is_kept_with_the_reason(
    tmp_path: Path, ramfs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = tmp_path / "state"
    first = why_not_shifted(str(ramfs), state)
    forget(monkeypatch)

    assert "cannot show files under another owner" in first
    assert why_not_shifted(str(ramfs), state) == first


def test_a_mount_in_a_folder_counts_for_the_folder(tmp_path: Path, ramfs: Path) -> None:
    assert why_not_shifted(str(ramfs.parent)) != ""


def test_what_is_not_there_yet_is_as_what_it_will_lie_in(tmp_path: Path, ramfs: Path) -> None:
    assert why_not_shifted(str(ramfs / "deep/in")) != ""
    assert why_not_shifted("/var/lib/no-such-folder/deep") == ""


def test_what_went_wrong_for_a_moment_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(shifting, "said", saying("no process can be started"))
        assert why_not_shifted(str(tmp_path), tmp_path / "state") == "no process can be started"
    monkeypatch.setattr(shifting, "_found", {})

    assert why_not_shifted(str(tmp_path), tmp_path / "state") == ""
