"""Find the words TODO, FIXME and XXX: in capitals, standing alone."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from repo_report.content import MARKERS
from repo_report.counting import HUGE_BYTES
from repo_report.folder import Entry, Folder

MAX_LISTED = 1_000
MAX_EXCERPT_BYTES = 120
_MARKER = re.compile(rf"\b(?:{'|'.join(MARKERS)})\b".encode())
_URGENCY = {"FIXME": 0, "XXX": 1, "TODO": 2}


class Marker(NamedTuple):
    """Hold one place; *line* counts from 1, *at* is its first byte in the file."""

    word: str
    line: int
    at: int


class Place(NamedTuple):
    """Hold a line with a marker, under the most urgent word on it."""

    path: str
    line: int
    word: str
    text: str


class Markers:
    """Hold how often each word was found, and the first lines."""

    def __init__(self) -> None:
        self.by_word: dict[str, int] = dict.fromkeys(MARKERS, 0)
        self.by_file: dict[str, int] = {}
        self.lines = 0
        self._places: list[Place] = []

    @property
    def total(self) -> int:
        """Count all words."""
        return sum(self.by_word.values())

    def add(self, path: str, marker: Marker, data: bytes, *, is_new_line: bool) -> None:
        """Add *marker*, found in *data*, the content of *path*."""
        self.by_word[marker.word] += 1
        self.by_file[path] = self.by_file.get(path, 0) + 1
        self.lines += is_new_line
        if is_new_line and len(self._places) < MAX_LISTED:
            self._places.append(Place(path, marker.line, marker.word, excerpt(data, marker.at)))
        elif not is_new_line and (path, marker.line) == self._places[-1][:2]:
            last = self._places[-1]
            if _URGENCY[marker.word] < _URGENCY[last.word]:
                self._places[-1] = last._replace(word=marker.word)

    def most_urgent(self, limit: int) -> list[Place]:
        """List at most *limit* lines: FIXME, then XXX, then TODO, each by path and line."""
        return sorted(
            self._places, key=lambda place: (_URGENCY[place.word], place.path, place.line)
        )[:limit]


def find_markers(folder: Folder, files: Iterable[Entry]) -> Markers:
    """Read *files* again for the words; one that cannot be read any more has none."""
    markers = Markers()
    for entry in files:
        try:
            data = folder.read(entry.path, HUGE_BYTES)
        except OSError:
            continue
        line = 0
        for marker in markers_in(data):
            folder.checkpoint()
            markers.add(entry.path, marker, data, is_new_line=marker.line != line)
            line = marker.line
    return markers


def markers_in(data: bytes) -> Iterator[Marker]:
    """Find every marker in *data*."""
    line, counted_to = 1, 0
    for found in _MARKER.finditer(data):
        line += data.count(b"\n", counted_to, found.start())
        counted_to = found.start()
        yield Marker(found[0].decode(), line, found.start())


def excerpt(data: bytes, at: int) -> str:
    """Cut the line around *at* out of *data*; of a long line, what follows *at*."""
    start = data.rfind(b"\n", max(0, at - MAX_EXCERPT_BYTES), at) + 1
    start = start or (0 if at <= MAX_EXCERPT_BYTES else at)
    end = data.find(b"\n", at, at + MAX_EXCERPT_BYTES)
    end = end if end >= 0 else min(len(data), at + MAX_EXCERPT_BYTES)
    if end - start > MAX_EXCERPT_BYTES:
        start = at
    is_cut = data[end : end + 1] not in (b"", b"\n")
    text = data[start:end].decode("utf-8", "ignore" if is_cut else "replace").strip()
    return f"{text}…" if is_cut else text
