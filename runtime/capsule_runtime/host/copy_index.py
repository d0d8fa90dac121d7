"""What a copy of a work directory held when it was made, and by which marks that is told later."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
from msgspec import Struct

Identity = tuple[int, int, int, int]
"""Inode, size, and the times of the last change of contents and of anything, in nanoseconds."""


class Copied(Struct, frozen=True, array_like=True):
    """One entry of the copy, as it was when it was made."""

    path: bytes
    kind: str
    """`f`, `l` or `d`."""
    mode: int
    here: Identity
    """In the copy."""
    there: Identity
    """In the original."""


class CopyIndex(Struct, frozen=True, array_like=True):
    """What a copy held when it was made, and of what it is one."""

    original: bytes
    device: int
    inode: int
    entries: tuple[Copied, ...]
    unseen: tuple[bytes, ...]
    """Paths that are not in the copy, though they are in the original."""

    def save(self, path: Path) -> None:
        """Write this to *path*, whole or not at all.

        Raises:
            OSError: the disk refuses.
        """
        draft = path.with_name(f"{path.name}.new")
        draft.touch(mode=0o600)  # others may be let through to where it lies
        draft.write_bytes(msgspec.msgpack.encode(self))
        draft.replace(path)


def identity_of(status: os.stat_result) -> Identity:
    """Return what changes whenever a file's contents, mode or name do."""
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def load_index(path: Path) -> CopyIndex | None:
    """Return the index at *path*; None when the copy was never finished.

    Raises:
        OSError: it cannot be read.
        DecodeError: it is damaged.
    """
    try:
        return msgspec.msgpack.decode(path.read_bytes(), type=CopyIndex)
    except FileNotFoundError:
        return None
