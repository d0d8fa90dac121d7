"""Remove what harnesses left, however deep it is."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def remove(folder: Path) -> None:
    """Remove *folder* with all that is in it, without following links."""
    _empty(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW))
    folder.rmdir()


def _empty(top: int) -> None:
    """Empty the folder *top*, level by level: a path would be too long, and a recursion too deep."""
    waiting, levels = [(top, [*os.listdir(top)])], [b""]
    while waiting:
        folder, names = waiting[-1]
        if not names:
            waiting.pop()
            os.close(folder)
            last = levels.pop()
            if waiting:
                os.rmdir(last, dir_fd=waiting[-1][0])
            continue
        name = names.pop()
        if not stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            os.unlink(name, dir_fd=folder)
            continue
        inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
        waiting.append((inner, [*os.listdir(inner)]))
        levels.append(os.fsencode(name))
