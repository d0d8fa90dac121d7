"""What is done in the stage of an application, file by file: see `apply_changes.py`."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from capsule_runtime.core.git_patch import LINK_MODE
from capsule_runtime.host.changes import Change, Contents, Piece

NAMED = 20
"""How many of the files that are in the way an error names."""
_CHUNK = 1024 * 1024
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class MovedOn(Exception):
    """Something in the target is not what was copied. *paths* say what."""

    def __init__(self, paths: Sequence[str]) -> None:
        super().__init__(", ".join(paths[:NAMED]))
        self.paths = tuple(paths)


def write_new(stage: int, name: str, change: Change, new: Piece, blobs: BinaryIO) -> None:
    blobs.seek(change.offset)
    if new.mode == LINK_MODE:
        os.symlink(os.fsdecode(blobs.read(new.size)), name, dir_fd=stage)
    else:
        # The process's umask takes from this what new files are not to have.
        mode = 0o777 if new.mode & 0o100 else 0o666
        with open(os.open(name, _NEW, mode, dir_fd=stage), "wb") as file:
            left = new.size
            while left and (chunk := blobs.read(min(_CHUNK, left))):
                file.write(chunk)
                left -= len(chunk)
            file.flush()
            os.fdatasync(file.fileno())
    if Contents(stage).piece(name) != new:
        raise OSError(errno.EIO, "the kept contents are damaged", os.fsdecode(change.path))


def place(stage: int, number: str, parent: int, name: str, path: str) -> None:
    """Give what is staged its place. An empty folder makes room; anything else that is there stays.

    Raises:
        MovedOn: something is there.
    """
    with suppress(OSError):
        os.rmdir(name, dir_fd=parent)
    try:
        os.link(number, name, src_dir_fd=stage, dst_dir_fd=parent, follow_symlinks=False)
    except FileExistsError as exc:
        raise MovedOn([path]) from exc


def current_umask() -> int:
    # Asking the process itself would set it, for a moment, for all threads.
    found = re.search(r"^Umask:\s+([0-7]+)", Path("/proc/self/status").read_text("ascii"), re.M)
    return int(found[1], 8) if found else 0o022


def new_name(number: int) -> str:
    return f"{number}.new"


def old_name(number: int) -> str:
    return f"{number}.old"
