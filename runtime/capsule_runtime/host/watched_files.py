"""Look at the files of a work directory that make tools run something, before a run and after it."""

from __future__ import annotations

import hashlib
import json
import os
import tomllib
from collections.abc import Callable, Container, Iterable, Mapping
from contextlib import suppress
from typing import Any, Literal, cast

from msgspec import Struct

from capsule_runtime.core.work import SHOWN, Warned, show_path
from capsule_runtime.host.beneath import FILE, open_beneath
from capsule_runtime.host.code_runners import GIT, PLAIN_OF_GIT, is_special, of_name, runner_of
from capsule_runtime.host.tree_walk import Found, Walk, open_folder

MOST_LOOKED_AT = 30_000
"""Entries of a work directory, those near its top first: so that the looking takes a fraction of a second."""
MOST_WATCHED = 2_000
_READ_BYTES = 256 * 1024

Snapshot = dict[str, str]
"""Each watched file, with what stands for its contents."""


class Watched(Struct, frozen=True):
    """The files on the list, as they are now, and whether there may be more."""

    files: Snapshot
    is_cut: bool


def look(
    workdir: str,
    stopped: Callable[[], bool] = lambda: False,
    without: os.stat_result | None = None,
) -> Watched:
    """Return the files beneath *workdir* that make something run, as they are now.

    The folder *without* is not entered.

    Raises:
        OSError: it is no folder that can be opened.
    """
    top = open_folder(workdir)
    try:
        return _Looking(top, stopped, without).look()
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
        runs = runner_of(path) or GIT
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
    def __init__(
        self, top: int, stopped: Callable[[], bool], without: os.stat_result | None
    ) -> None:
        self._files: Snapshot = {}
        self._without = without
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
                self._place, self._is_special = folder, is_special(folder, self._git)
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
        elif of_name(found.name) is not None:
            return True
        # Its folder may be git's own, by a HEAD beside it that comes later.
        return found.name == "config" and all(
            _is_there(found.folder, name) for name in ("HEAD", "objects", "refs")
        )

    def _enters(self, found: Found) -> bool:
        if self._without is not None and found.entry.inode() == self._without.st_ino:
            with suppress(FileNotFoundError):
                if os.path.samestat(found.status, self._without):
                    return False
        folder, _, name = found.path.rpartition("/")
        is_git = folder.rpartition("/")[2].lower() == ".git" or folder in self._git
        return not (is_git and name in PLAIN_OF_GIT)


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
