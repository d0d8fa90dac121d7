"""No walls are put around a work directory that holds the logins of its caller."""

from __future__ import annotations

from pathlib import Path

import pytest

from capsule_runtime.errors import UsageError
from capsule_runtime.workdirs import refuse_exposing
from support.command import HELLO, Command


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "users" / "me"
    (home / ".aws").mkdir(parents=True)
    (home / "project").mkdir()
    monkeypatch.setenv("HOME", str(home))
    return home


@pytest.mark.parametrize("mode", ["rw", "ro", "copy"])
@pytest.mark.parametrize("tier", ["sealed", "scoped"])
@pytest.mark.parametrize("place", [".", "..", ".aws"])
def test_home_what_is_above_and_credentials_are_refused_in_every_mode(
    home: Path, tmp_path: Path, place: str, tier: str, mode: str
) -> None:
    with pytest.raises(UsageError) as refused:
        refuse_exposing(home / place, mode, tier, tmp_path / "state")  # type: ignore[arg-type]  # parameters are words

    assert refused.value.code == "E-USE-015"
    assert "copy" not in refused.value.hint


def test_a_link_to_home_is_home(home: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(home)
    with pytest.raises(UsageError, match="home folder"):
        refuse_exposing(tmp_path / "link", "rw", "sealed", tmp_path / "state")


def test_credentials_that_lie_in_a_project_by_a_link_are_refused(
    home: Path, tmp_path: Path
) -> None:
    (home / "project" / "keys").mkdir()
    (home / ".ssh").symlink_to(home / "project" / "keys")
    with pytest.raises(UsageError, match=r"~/\.ssh"):
        refuse_exposing(home / "project", "rw", "scoped", tmp_path / "state")


def test_a_project_below_home_and_an_advisory_home_are_taken(home: Path, tmp_path: Path) -> None:
    refuse_exposing(home / "project", "rw", "sealed", home / ".local" / "state" / "capsule")
    refuse_exposing(home, "rw", "advisory", tmp_path / "state")


def test_a_project_with_the_state_directory_is_taken_as_a_copy_only(home: Path) -> None:
    project, state = home / "project", home / "project" / ".capsule"
    with pytest.raises(UsageError) as refused:
        refuse_exposing(project, "rw", "sealed", state)
    refuse_exposing(project, "copy", "sealed", state)

    assert "--workdir-mode copy" in refused.value.hint


@pytest.mark.parametrize("words", [(), ("--explain",)])
def test_such_a_run_is_refused_with_nothing_made(tmp_path: Path, words: tuple[str, ...]) -> None:
    command = Command(tmp_path)

    done = command("run", command.capsule(HELLO), "--task", "go", *words)

    assert done.status == 2
    assert "E-USE-015" in done.err
    assert list(command.state.glob("runs/*")) == []
