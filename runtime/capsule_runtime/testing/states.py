"""State directories for tests."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

_SHARED_MEMORY = "/dev/shm"


@contextmanager
def in_memory() -> Generator[Path]:
    """Yield a private state directory that lies in memory and is gone after the block.

    It is a folder like any other, on the machine's shared memory: database, locks and bells are
    the real ones, other processes may share it, and only a disk's slowness is missing. Where there
    is no shared memory it lies among the temporary files.
    """
    usable = os.access(_SHARED_MEMORY, os.W_OK | os.X_OK)
    with TemporaryDirectory(prefix="capsule-", dir=_SHARED_MEMORY if usable else None) as folder:
        yield Path(folder, "state")
