"""Which files make tools run something by themselves, and what of them a run changed.

On the list is what is obeyed by a program that was started for something else: git, an editor, an
agent, a shell that enters the folder, a package manager, a pipeline. What somebody runs on purpose
(a Makefile, a test, a script) is not: that is the work itself, and nearly every run changes it.
"""

from __future__ import annotations

import hashlib
import json
import os
import tomllib
from collections.abc import Callable, Container, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, cast

from capsule_runtime.core.work import SHOWN, Warned, show_path
from capsule_runtime.host.beneath import FILE, open_beneath
from capsule_runtime.host.tree_walk import Found, Walk, open_folder

MOST_LOOKED_AT = 30_000
"""Entries of a work directory, those near its top first: so that the looking takes a fraction of a second."""
MOST_WATCHED = 2_000
_READ_BYTES = 256 * 1024
_GIT = "git, at nearly any command"
_EDITOR = "an editor that opens the folder"
_AGENT = "an agent that starts in the folder"
_PIPELINE = "a pipeline, once it is pushed"
_SHELL = "a shell that enters the folder"
_PACKAGES = "a package manager, when it installs or builds"
_HOOKS = "git, through a manager of hooks"

_FOLDERS = {
    **dict.fromkeys((".vscode", ".idea", ".devcontainer", ".zed", ".fleet"), _EDITOR),
    **dict.fromkeys(
        (
            *(".claude", ".codex", ".gemini", ".qwen", ".cursor", ".opencode", ".pi", ".copilot"),
            *(".windsurf", ".continue", ".kiro", ".roo", ".goose", ".amazonq"),
        ),
        _AGENT,
    ),
    ".github/workflows": _PIPELINE,
    ".github/actions": _PIPELINE,
    ".github/hooks": _AGENT,
    ".circleci": _PIPELINE,
    ".buildkite": _PIPELINE,
    ".forgejo/workflows": _PIPELINE,
    ".gitea/workflows": _PIPELINE,
    ".husky": _HOOKS,
    ".githooks": _HOOKS,
    ".cargo": _PACKAGES,
    ".yarn": _PACKAGES,
}
"""Everything beneath a folder of such a name, wherever it lies."""
_FILES = {
    ".gitattributes": "git, which runs the filters that it names",
    ".gitmodules": "git, when it updates submodules",
    **dict.fromkeys((".mcp.json", "opencode.json", "opencode.jsonc", ".aider.conf.yml"), _AGENT),
    **dict.fromkeys((".devcontainer.json", ".dir-locals.el", ".exrc", ".vimrc"), _EDITOR),
    **dict.fromkeys((".nvimrc", ".nvim.lua", ".lvimrc"), _EDITOR),
    **dict.fromkeys((".envrc", ".mise.toml", "mise.toml", ".autoenv", ".autoenv.zsh"), _SHELL),
    **dict.fromkeys((".gitlab-ci.yml", "Jenkinsfile", "azure-pipelines.yml"), _PIPELINE),
    **dict.fromkeys((".travis.yml", ".drone.yml", "bitbucket-pipelines.yml"), _PIPELINE),
    **dict.fromkeys((".pre-commit-config.yaml", "lefthook.yml", ".lefthook.yml"), _HOOKS),
    **dict.fromkeys((".npmrc", ".yarnrc.yml", ".pnpmfile.cjs", "package.json"), _PACKAGES),
    **dict.fromkeys(("binding.gyp", "setup.py", "pyproject.toml", "build.rs"), _PACKAGES),
    **dict.fromkeys(("sitecustomize.py", "usercustomize.py"), "Python, whenever it starts there"),
}
_ENDINGS = {".code-workspace": _EDITOR, ".pth": "Python, if its folder is installed"}
_STARTS = {folder.split("/")[0] for folder in _FOLDERS} | {".git"}
_OF_GIT = ("config", "config.worktree", "commondir", "gitdir")
"""What of a folder of git's own makes it run or read something, beside its hooks."""
_PLAIN_OF_GIT = ("objects", "refs", "logs", "lfs")
"""Contents of repositories, which nothing runs: there may be very many."""


def runner_of(path: str, git_folders: frozenset[str] = frozenset()) -> str | None:
    """Return who takes orders from the file *path*; None if nobody does by itself.

    Folders of git's own are known by their name, or given as *git_folders*.
    """
    parts = path.split("/")
    if (inside := _inside_git(parts, git_folders)) is not None:
        return _GIT if _is_obeyed(inside) else None
    for depth, part in enumerate(parts):
        # The last part counts too: a link may stand where such a folder should.
        inner = "/".join(parts[depth : depth + 2])
        if (runner := _FOLDERS.get(part.lower()) or _FOLDERS.get(inner.lower())) is not None:
            return runner
    return _of_name(parts[-1])


def _of_name(name: str) -> str | None:
    if name.lower() in _STARTS:  # a link, or the file that says where a repository is
        return _GIT if name.lower() == ".git" else _FOLDERS.get(name.lower(), _PIPELINE)
    return _FILES.get(name) or _ENDINGS.get(os.path.splitext(name)[1])


def _is_special(folder: str, git_folders: Container[str]) -> bool:
    """Whether more than the name of a file in *folder* tells whether it is on the list."""
    parts = folder.split("/")
    return any(
        part.lower() in _STARTS or "/".join(parts[: depth + 1]) in git_folders
        for depth, part in enumerate(parts)
    )


def _inside_git(parts: list[str], git_folders: frozenset[str]) -> list[str] | None:
    """Return where in a folder of git's own something lies; None if it is in none."""
    for depth in range(1, len(parts)):
        if parts[depth - 1].lower() == ".git" or "/".join(parts[:depth]) in git_folders:
            return parts[depth:]
    return None


def _is_obeyed(inside: list[str]) -> bool:
    """Whether git obeys one of its own files, of the repository or of one within it."""
    if inside[0] in _PLAIN_OF_GIT:
        return False
    is_hook = "hooks" in inside and not inside[-1].endswith(".sample")
    return is_hook or inside[-1] in _OF_GIT or inside[-2:] == ["info", "attributes"]


Snapshot = dict[str, str]
"""Each watched file, with what stands for its contents."""


@dataclass(frozen=True, slots=True)
class Watched:
    """The files on the list, as they are now, and whether there may be more."""

    files: Snapshot
    is_cut: bool


def look(workdir: str, stopped: Callable[[], bool] = lambda: False) -> Watched:
    """Return the files beneath *workdir* that make something run, as they are now.

    Raises:
        OSError: it is no folder that can be opened.
    """
    top = open_folder(workdir)
    try:
        return _Looking(top, stopped).look()
    finally:
        os.close(top)


def warnings_of(before: Snapshot, after: Snapshot, *, is_whole: bool) -> list[Warned]:
    """Return what changed between two looks. What is no longer there counts if all was looked at."""
    warned: list[Warned] = []
    for path in sorted({*before, *after}, key=os.fsencode):
        if before.get(path) == after.get(path) or (path not in after and not is_whole):
            continue
        change: Literal["added", "changed", "removed"] = (
            "added" if path not in before else "changed" if path in after else "removed"
        )
        # What no name tells is of a repository without a work tree.
        runs = runner_of(path) or _GIT
        warned.append(Warned(show_path(os.fsencode(path)), change, runs))
    return warned


def runner_warnings(paths: Iterable[bytes], known: Container[str]) -> list[Warned]:
    """Return warnings of the changed *paths* that were not looked at; none of what is *known*."""
    warned: list[Warned] = []
    for path in paths:
        shown, runs = show_path(path), runner_of(os.fsdecode(path))
        if runs is not None and shown not in known:
            warned.append(Warned(shown, "changed", runs))
    return warned


def first_of(warned: list[Warned]) -> tuple[tuple[Warned, ...], int]:
    """Return as many warnings as an entry of the log names, and how many there are."""
    return tuple(warned[:SHOWN]), len(warned)


class _Looking:
    def __init__(self, top: int, stopped: Callable[[], bool]) -> None:
        self._files: Snapshot = {}
        self._top = top
        self._is_cut = False
        self._git: set[str] = set()
        self._place: str | None = None
        self._is_special = False
        self._walk = Walk(
            top,
            MOST_LOOKED_AT,
            self._enters,
            breadth_first=True,
            names_only=True,
            stopped=stopped,
        )

    def look(self) -> Watched:
        for found in self._walk:
            folder, name = found.path[: -len(found.name) - 1], found.name
            if folder != self._place:
                self._place, self._is_special = folder, _is_special(folder, self._git)
            if name == "HEAD" and found.is_file and folder:
                self._git.add(folder)
                self._is_special = True
            if not found.is_folder and self._is_watched(found):
                if len(self._files) == MOST_WATCHED:
                    self._is_cut = True
                    break
                self._files[found.path] = _mark_of(found)
        is_cut = self._is_cut or self._walk.is_cut or bool(self._walk.unseen)
        return Watched(self._files, is_cut)

    def _is_watched(self, found: Found) -> bool:
        if self._is_special:
            if runner_of(found.path, frozenset(self._git)) is not None:
                return True
        elif _of_name(found.name) is not None:
            return True
        # Its folder may be git's own, by a HEAD beside it that comes later.
        return found.name == "config" and all(
            _is_there(found.folder, name) for name in ("HEAD", "objects", "refs")
        )

    def _enters(self, found: Found) -> bool:
        folder, _, name = found.path.rpartition("/")
        is_git = folder.rpartition("/")[2].lower() == ".git" or folder in self._git
        return not (is_git and name in _PLAIN_OF_GIT)


def _is_there(folder: int, name: str) -> bool:
    with suppress(OSError):
        os.lstat(name, dir_fd=folder)
        return True
    return False


def _mark_of(found: Found) -> str:
    """Return what stands for the contents: the part of them that runs, where that can be told."""
    if found.is_link:
        with suppress(OSError):
            return f"link {os.readlink(found.name, dir_fd=found.folder)!r}"
        return "gone"
    try:
        status = found.status
    except FileNotFoundError:
        return "gone"
    if found.is_file and status.st_size <= _READ_BYTES:
        with suppress(OSError):
            with open(open_beneath(found.folder, found.name, FILE), "rb") as file:
                data = file.read(_READ_BYTES)
            told = _part_that_runs(found.name, data)
            return f"{status.st_mode & 0o111:o} {hashlib.sha256(told).hexdigest()}"
    return f"{status.st_mode:o} {status.st_ino} {status.st_size} {status.st_ctime_ns}"


def _part_that_runs(name: str, data: bytes) -> bytes:
    try:
        match name:
            case "package.json":
                package = cast("object", json.loads(data))
                return _chosen(package, ("scripts", "workspaces", "gypfile", "packageManager"))
            case "pyproject.toml":
                project = tomllib.loads(data.decode())
                hatch = _inner(_inner(project, "tool"), "hatch")
                return _chosen(project, ("build-system",)) + _chosen(hatch, ("build",))
            case _:
                return data
    except (ValueError, RecursionError):
        return data


def _inner(table: Mapping[str, Any], name: str) -> dict[str, Any]:
    inner = table.get(name)
    return cast("dict[str, Any]", inner) if isinstance(inner, dict) else {}


def _chosen(table: object, names: tuple[str, ...]) -> bytes:
    found = cast("dict[str, object]", table) if isinstance(table, dict) else {}
    return json.dumps([found.get(name) for name in names], sort_keys=True, default=str).encode()
