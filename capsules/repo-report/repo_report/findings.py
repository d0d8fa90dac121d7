"""Collect what looks odd, by kind."""

from __future__ import annotations

from typing import NamedTuple

# In the order of the report: what most likely needs a person comes first.
TITLES = {
    "conflict": "Merge conflict markers",
    "broken-link": "Broken links",
    "looping-link": "Links that loop",
    "outside-link": "Links that leave the folder",
    "unreadable": "Cannot be read",
    "special": "Neither file, folder nor link (not opened)",
    "blob": "Binary files among the sources",
    "huge": "Huge files (not read)",
    "duplicate": "Large files with the same content",
    "encoding": "Text that is not UTF-8",
    "mixed-endings": "Mixed line endings",
    "long-lines": "Very long lines (generated or minified?)",
    "no-shebang": "Executable text without a `#!` line",
    "odd-name": "Names that are hard to type or not UTF-8",
    "case-clash": "Names that differ only in case",
}


class Finding(NamedTuple):
    """Hold one odd path; *detail* says more, with the path *other*; *size* where it matters."""

    path: str
    detail: str
    other: str
    size: int


class Findings:
    """Hold all findings of one survey."""

    def __init__(self) -> None:
        self._by_kind: dict[str, list[Finding]] = {kind: [] for kind in TITLES}

    def add(
        self, kind: str, path: str, detail: str = "", *, other: str = "", size: int = 0
    ) -> None:
        """Add one odd path; *kind* is a key of `TITLES`."""
        self._by_kind[kind].append(Finding(path, detail, other, size))

    def discard(self, kind: str) -> None:
        """Forget all findings of *kind*."""
        self._by_kind[kind].clear()

    def of(self, kind: str) -> list[Finding]:
        """List the findings of *kind*: the largest first, then by path."""
        return sorted(self._by_kind[kind], key=lambda finding: (-finding.size, finding.path))

    def kinds(self) -> list[str]:
        """List the kinds that were found, in the order of the report."""
        return [kind for kind, found in self._by_kind.items() if found]
