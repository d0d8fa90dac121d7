"""Small files that may be deleted: what took long to find out, kept for the next time.

What lies there is not trusted: a file of somebody else's, one that others may write to, and one that
is too large are as good as none.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from capsule_runtime.errors import StoreError
from capsule_runtime.host.private_files import make_private_directory

_MOST_BYTES = 16 * 1024 * 1024


def read_kept(path: Path) -> bytes | None:
    """Return what is kept at *path*; None if there is nothing to trust."""
    # NONBLOCK: opening a pipe that somebody left there must not wait for its writer.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with suppress(OSError), open(os.open(path, flags), "rb") as file:
        if _is_ours(os.fstat(file.fileno())):
            return file.read(_MOST_BYTES + 1)
    return None


def keep(path: Path, data: bytes) -> None:
    """Keep *data* at *path*, whole or not at all. A disk that refuses changes nothing."""
    draft = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    with suppress(OSError, StoreError):
        make_private_directory(path.parent)
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with open(os.open(draft, flags, 0o600), "wb") as file:
                file.write(data)
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)


def _is_ours(found: os.stat_result) -> bool:
    is_private = found.st_uid == os.geteuid() and not found.st_mode & 0o022
    return stat.S_ISREG(found.st_mode) and is_private and found.st_size <= _MOST_BYTES
