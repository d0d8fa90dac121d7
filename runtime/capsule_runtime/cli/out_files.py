"""What a run left in its out folder, listed while the harness may still be at work in it.

A harness can put anything there and change it at any time. So the walk goes from folder to folder
by descriptors, which no link can lead astray, and it ends however much there is.
"""

from __future__ import annotations

import os
from pathlib import Path

from msgspec import Struct

_MOST_FILES = 10_000
_MOST_ENTRIES = 100_000
"""Folders, links and the like are looked at too, though they are not listed."""
_MOST_LEVELS = 100
"""Each level of folders takes a descriptor."""
_MOST_PATH_BYTES = 4096
"""Nobody can open a longer path."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class OutFile(Struct, frozen=True):
    """A file that the run left behind; *path* is relative to the run's out folder."""

    path: str
    size: int


class OutFiles(Struct, frozen=True):
    """The regular files of an out folder by name, and whether there may be more."""

    files: tuple[OutFile, ...]
    is_cut: bool


def list_out_files(folder: Path) -> OutFiles:
    """Return what is in *folder* now; nothing, if it is no folder."""
    walk = _Walk()
    walk.enter(str(folder), None, "", _MOST_LEVELS)
    return OutFiles(tuple(sorted(walk.files, key=lambda file: file.path)), walk.is_cut)


class _Walk:
    def __init__(self) -> None:
        self.files: list[OutFile] = []
        self.is_cut = False
        self._entries = 0

    def enter(self, name: str, parent: int | None, place: str, levels: int) -> None:
        """List the folder *name* in *parent*; what is gone by now is no part of it."""
        try:
            fd = os.open(name, _FOLDER, dir_fd=parent)
        except FileNotFoundError:
            return
        except OSError:
            self.is_cut = True
            return
        try:
            for inner in self._list(fd, place):
                if levels == 0:
                    self.is_cut = True
                    return
                self.enter(inner, fd, f"{place}{inner}/", levels - 1)
        finally:
            os.close(fd)

    def _list(self, fd: int, place: str) -> list[str]:
        """Take the files in the folder *fd*, and return the names of its folders."""
        folders: list[str] = []
        with os.scandir(fd) as entries:
            for entry in entries:
                if self._entries == _MOST_ENTRIES or len(self.files) == _MOST_FILES:
                    self.is_cut = True
                    return []
                self._entries += 1
                if len(os.fsencode(place + entry.name)) >= _MOST_PATH_BYTES:
                    self.is_cut = True
                elif entry.is_dir(follow_symlinks=False):
                    folders.append(entry.name)
                elif entry.is_file(follow_symlinks=False):
                    self._take(entry, place)
        return folders

    def _take(self, entry: os.DirEntry[str], place: str) -> None:
        try:
            size = entry.stat(follow_symlinks=False).st_size
        except FileNotFoundError:
            return
        shown = os.fsencode(place + entry.name).decode("utf-8", "replace")
        self.files.append(OutFile(shown, size))
