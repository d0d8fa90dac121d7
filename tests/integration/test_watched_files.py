"""A look at what makes tools run something, before and after: what changed, and nothing else."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from capsule_runtime.host import watched_files
from capsule_runtime.host.watched_files import look, warnings_of
from support.trees import git


def warned(top: Path, act: Callable[[], object]) -> dict[str, str]:
    """Return what is warned of after *act*."""
    before = look(str(top))
    act()
    after = look(str(top))
    is_whole = not (before.is_cut or after.is_cut)
    return {it.path: it.change for it in warnings_of(before.files, after.files, is_whole=is_whole)}


def test_added_changed_and_removed_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / ".envrc").write_text("a")
    (tmp_path / ".npmrc").write_text("a")

    def act() -> None:
        (tmp_path / ".envrc").write_text("b")
        (tmp_path / ".npmrc").unlink()
        (tmp_path / ".mcp.json").write_text("{}")

    assert warned(tmp_path, act) == {
        ".envrc": "changed",
        ".mcp.json": "added",
        ".npmrc": "removed",
    }


def test_a_touched_file_has_not_changed(tmp_path: Path) -> None:
    (tmp_path / ".envrc").write_text("a")

    assert warned(tmp_path, lambda: os.utime(tmp_path / ".envrc")) == {}


def test_of_a_package_only_what_runs_counts(tmp_path: Path) -> None:
    package, project = tmp_path / "package.json", tmp_path / "pyproject.toml"
    package.write_text('{"version":"1","scripts":{"test":"true"}}')
    project.write_text('[project]\nname = "x"\n[build-system]\nrequires = []\n')

    def harmless() -> None:
        package.write_text('{"version":"2","scripts":{"test":"true"}}')
        project.write_text('[project]\nname = "y"\n[build-system]\nrequires = []\n')

    def harmful() -> None:
        package.write_text('{"version":"2","scripts":{"test":"true","postinstall":"evil"}}')
        project.write_text('[project]\nname = "y"\n[build-system]\nrequires = ["evil"]\n')

    assert warned(tmp_path, harmless) == {}
    assert warned(tmp_path, harmful) == {"package.json": "changed", "pyproject.toml": "changed"}


@pytest.mark.parametrize("text", ["{", "[" * 100_000, '"text"', "\xff"])
def test_a_package_that_is_none_counts_whole(tmp_path: Path, text: str) -> None:
    package = tmp_path / "package.json"
    package.write_text(text)

    assert warned(tmp_path, lambda: package.write_text(f"{text} ")) in (
        {"package.json": "changed"},
        {},  # a JSON text, with a blank behind it
    )


def test_hooks_of_every_kind_of_repository_are_seen(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "main")
    main = tmp_path / "main"
    (main / "file").touch()
    git(main, "add", "-A")
    git(main, "commit", "-qm", "one")
    git(main, "worktree", "add", "-q", "../tree")
    git(tmp_path, "init", "-q", "main/nested")

    def act() -> None:
        git(tmp_path, "init", "-q", "--bare", "main/bare")
        for folder in ("main/.git", "main/nested/.git", "main/bare"):
            (tmp_path / folder / "hooks/pre-commit").write_text("evil")
        git(main, "config", "extensions.worktreeConfig", "true")
        git(tmp_path / "tree", "config", "--worktree", "core.fsmonitor", "evil")
        git(main, "commit", "-q", "--allow-empty", "-m", "two")

    assert warned(tmp_path, act) == {
        "main/.git/config": "changed",
        "main/.git/hooks/pre-commit": "added",
        "main/.git/worktrees/tree/config.worktree": "added",
        "main/bare/config": "added",
        "main/bare/hooks/pre-commit": "added",
        "main/nested/.git/hooks/pre-commit": "added",
    }


def test_a_link_in_the_place_of_a_folder_is_seen(tmp_path: Path) -> None:
    (tmp_path / "evil").mkdir()
    (tmp_path / "evil/tasks.json").touch()

    assert warned(tmp_path, lambda: (tmp_path / ".vscode").symlink_to("evil")) == {
        ".vscode": "added"
    }


def test_what_was_there_is_not_missed_where_not_all_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watched_files, "MOST_LOOKED_AT", 30)
    (tmp_path / "a").mkdir()
    (tmp_path / "a/.envrc").touch()

    def crowd() -> None:
        for number in range(60):
            (tmp_path / f"new{number}").touch()

    assert warned(tmp_path, crowd) == {}
    assert look(str(tmp_path)).is_cut


def test_the_state_directory_is_passed_by(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state/.envrc").touch()
    without = (tmp_path / "state").stat()

    assert list(look(str(tmp_path)).files) == ["state/.envrc"]
    assert look(str(tmp_path), without=without).files == {}


def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(tmp_path: Path) -> None:
    assert warned(tmp_path, lambda: os.mkfifo(tmp_path / ".envrc")) == {".envrc": "added"}
