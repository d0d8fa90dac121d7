"""Find the files that changed last: by commit where git knows, else by modification time."""

from __future__ import annotations

from typing import NamedTuple

from repo_report.git import Git, GitFailed
from repo_report.listing import Listing

MAX_COMMITS = 5_000


class Change(NamedTuple):
    """Hold one file and when it changed, in seconds since the epoch; *commit* may be ""."""

    path: str
    at: float
    commit: str


class Recent(NamedTuple):
    """Hold the newest changes first; *why* says why git was not asked, or not to the end."""

    changes: list[Change]
    by_git: bool
    why: str


def find_recent(listing: Listing, git: Git, limit: int) -> Recent:
    """Find the *limit* files that changed last."""
    if not listing.by_git:
        return _by_time(listing, limit, listing.why_walked)
    committed: list[Change] = []
    why = ""
    try:
        _read_log(git, frozenset(entry.path for entry in listing.files), limit, committed)
    except GitFailed as failure:
        why = str(failure)
        if not committed:
            return _by_time(listing, limit, why)
    untracked = [
        Change(entry.path, entry.mtime, "")
        for entry in listing.files
        if entry.path in listing.untracked
    ]
    return Recent(_newest(committed + untracked, limit), True, why)


def _read_log(git: Git, wanted: frozenset[str], limit: int, changes: list[Change]) -> None:
    """Add the newest change of each wanted file, until there are *limit*."""
    seen: set[str] = set()
    at, commit = 0.0, ""
    # Git writes a newline between a commit's line and its first path.
    is_first = False
    arguments = (
        "log",
        "-z",
        f"--max-count={MAX_COMMITS}",
        # No path in a repository begins with a slash, so this line cannot be one.
        "--format=//%ct %h",
        "--name-only",
        "--relative",
        "--no-renames",
        "--no-ext-diff",
        "--no-textconv",
        "--no-color",
        "--",
        ".",
    )
    with git.records(*arguments, timeout=20) as records:
        for record in records:
            if record.startswith("//"):
                seconds, _, commit = record[2:].partition(" ")
                at, is_first = float(seconds), True
                continue
            path = record[1:] if is_first else record
            is_first = False
            if path in wanted and path not in seen:
                seen.add(path)
                changes.append(Change(path, at, commit))
                if len(changes) >= limit:
                    return


def _by_time(listing: Listing, limit: int, why: str) -> Recent:
    changes = [Change(entry.path, entry.mtime, "") for entry in listing.files]
    return Recent(_newest(changes, limit), False, why)


def _newest(changes: list[Change], limit: int) -> list[Change]:
    return sorted(changes, key=lambda change: (-change.at, change.path))[:limit]
