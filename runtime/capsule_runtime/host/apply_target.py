"""Hold the folder that changes are applied to."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager

from capsule_runtime.errors import HostError, UsageError
from capsule_runtime.host.apply_changes import Target


@contextmanager
def opened_target(folder: str, device: int, inode: int, stage: str) -> Generator[Target]:
    """Hold the *folder* that was copied, for us alone.

    Raises:
        UsageError: E-USE-073, it is gone, or another one than was copied.
        HostError: E-HOST-042, it cannot be opened.
    """
    try:
        # Its own name may lead through links, as when it was copied; nothing beneath it may.
        top = os.open(os.path.realpath(folder), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError) as exc:
        raise UsageError("E-USE-073", f"the work directory {folder} is gone: {exc}") from exc
    except OSError as exc:
        raise HostError("E-HOST-042", f"nothing was applied: {folder}: {exc}") from exc
    try:
        status = os.fstat(top)
        if (status.st_dev, status.st_ino) != (device, inode):
            raise UsageError(
                "E-USE-073",
                f"{folder} is another folder than the one that was copied",
                "The changes are kept as a patch: `capsule show` says where.",
            )
        fcntl.flock(top, fcntl.LOCK_EX)
        yield Target(top, stage)
    finally:
        os.close(top)
