"""Make directories and files that only their owner can read, whatever the umask is."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from capsule_runtime.host.store_errors import from_kernel


def make_private_directory(path: Path) -> None:
    """Create *path* with mode 0700, its parents as usual. One that is there stays as it is.

    Raises:
        StoreError: it cannot be created.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(mode=0o700)
        path.chmod(0o700)
    except FileExistsError as error:
        if not path.is_dir():
            raise from_kernel(error, path) from error
    except OSError as error:
        raise from_kernel(error, path) from error


def open_private_file(path: Path) -> int:
    """Open *path* for reading and writing, created with mode 0600 if need be.

    Raises:
        StoreError: it cannot be opened.
    """
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        # A file that is there at the first look may be removed before the second.
        while True:
            with suppress(FileExistsError):
                fd = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600)
                os.fchmod(fd, 0o600)
                return fd
            with suppress(FileNotFoundError):
                return os.open(path, flags)
    except OSError as error:
        raise from_kernel(error, path) from error
