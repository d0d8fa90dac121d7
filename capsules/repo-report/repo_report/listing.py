"""List the files that belong to a folder: as git sees it, else by walking."""

from __future__ import annotations

import os
from typing import NamedTuple

from repo_report.findings import Findings
from repo_report.folder import Entry, Folder
from repo_report.git import Git, GitFailed

MAX_ENTRIES = 500_000
VERSION_CONTROL = (".git", ".hg", ".svn", ".jj", ".bzr", "CVS")


class Listing(NamedTuple):
    """Hold the names to look at, sorted by path, and what was left out."""

    entries: list[Entry]
    by_git: bool
    why_walked: str
    branch: str
    untracked: frozenset[str]
    version_control: list[str]
    nested: list[str]
    ignored: list[str]
    absent: int
    is_cut: bool

    @property
    def files(self) -> list[Entry]:
        """List the plain files alone."""
        return [entry for entry in self.entries if entry.kind == "file"]


def list_files(folder: Folder, git: Git, findings: Findings) -> Listing:
    """List what git tracks or would track; where git has no say, everything."""
    try:
        names = _ask_git(git)
    except GitFailed as failure:
        return _walk(folder, findings, str(failure))
    # A folder that an outer repository ignores is empty for git, though it holds files.
    if not names:
        return _walk(folder, findings, "git knows no file here")
    return _look(folder, git, names, findings)


def _ask_git(git: Git) -> dict[str, str]:
    """Ask for the tag of each path: `?` is untracked, `S` tracked but not checked out."""
    names: dict[str, str] = {}
    arguments = ("ls-files", "-z", "-t", "--cached", "--others", "--exclude-standard")
    with git.records(*arguments, timeout=120) as records:
        for record in records:
            names[record[2:]] = record[0]
            if len(names) > MAX_ENTRIES:
                break
    return names


def _look(folder: Folder, git: Git, names: dict[str, str], findings: Findings) -> Listing:
    entries: list[Entry] = []
    nested: list[str] = []
    absent = 0
    for path in sorted(names)[:MAX_ENTRIES]:
        try:
            entry = folder.look(path.rstrip("/"))
        # A folder on the way may have become a file or a link since git indexed the path.
        except (FileNotFoundError, NotADirectoryError):
            absent += 1
            continue
        except OSError as error:
            findings.add("unreadable", path, _why(error))
            continue
        if entry.kind == "folder":
            nested.append(entry.path)
        else:
            entries.append(entry)
    return Listing(
        entries,
        by_git=True,
        why_walked="",
        branch=git.line("symbolic-ref", "--short", "-q", "HEAD"),
        untracked=frozenset(path for path, tag in names.items() if tag == "?"),
        version_control=[".git"] if _exists(folder, ".git") else [],
        nested=nested,
        ignored=_ignored(git),
        absent=absent,
        is_cut=len(names) > MAX_ENTRIES,
    )


def _ignored(git: Git) -> list[str]:
    arguments = ("ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory")
    ignored: list[str] = []
    try:
        with git.records(*arguments, timeout=30) as records:
            ignored.extend(records)
    except GitFailed as failure:
        ignored.append(f"({failure})")
    return ignored


def _walk(folder: Folder, findings: Findings, why: str) -> Listing:
    entries: list[Entry] = []
    version_control: list[str] = []
    pending = [""]
    while pending and len(entries) <= MAX_ENTRIES:
        path = pending.pop()
        try:
            found = sorted(folder.scan(path), reverse=True)
        except OSError as error:
            findings.add("unreadable", path or ".", _why(error))
            continue
        for entry in found:
            if os.path.basename(entry.path) in VERSION_CONTROL:
                version_control.append(entry.path)
            elif entry.kind == "folder":
                pending.append(entry.path)
            else:
                entries.append(entry)
    entries.sort()
    return Listing(
        entries[:MAX_ENTRIES],
        by_git=False,
        why_walked=why,
        branch="",
        untracked=frozenset(),
        version_control=sorted(version_control),
        nested=[],
        ignored=[],
        absent=0,
        is_cut=len(entries) > MAX_ENTRIES,
    )


def _exists(folder: Folder, path: str) -> bool:
    try:
        folder.look(path)
    except OSError:
        return False
    return True


def _why(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
