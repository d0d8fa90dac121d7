"""What a run left in its out folder, listed while the harness may still be at work in it."""

from __future__ import annotations

import os
from pathlib import Path

from msgspec import Struct

from capsule_runtime.host.tree_walk import Walk, open_folder

_MOST_FILES = 10_000
_MOST_ENTRIES = 100_000
"""Folders, links and the like are looked at too, though they are not listed."""


class OutFile(Struct, frozen=True):
    """A file that the run left behind; *path* is relative to the run's out folder."""

    path: str
    size: int


class OutFiles(Struct, frozen=True):
    """The regular files of an out folder by name, and whether there may be more."""

    files: tuple[OutFile, ...]
    is_cut: bool


def list_out_files(folder: Path) -> OutFiles:
    """Return what is in *folder* now; nothing, if it is no folder.

    A file that has another name too is not listed: that may be one outside.
    """
    try:
        top = open_folder(folder)
    except FileNotFoundError:
        return OutFiles((), is_cut=False)
    except OSError:
        return OutFiles((), is_cut=True)
    try:
        return _listed(Walk(top, _MOST_ENTRIES))
    finally:
        os.close(top)


def _listed(walk: Walk) -> OutFiles:
    files: list[OutFile] = []
    is_cut = False
    for found in walk:
        if len(files) == _MOST_FILES:
            is_cut = True
            break
        if found.is_sole:
            shown = os.fsencode(found.path).decode("utf-8", "replace")
            files.append(OutFile(shown, found.status.st_size))
        elif found.is_file:
            is_cut = True
    files.sort(key=lambda file: file.path)
    return OutFiles(tuple(files), is_cut or walk.is_cut or bool(walk.unseen))
