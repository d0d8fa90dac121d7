"""Files at the edge of a run: what a driver plants, what it collects, and out/result.txt.

A harness may have left links, pipes or folders in its HOME and its out folder. Nothing here follows
a link or waits on a pipe.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Generator, Iterable, Mapping
from pathlib import Path, PurePosixPath

from capsule_runtime.errors import HarnessError, HostError
from capsule_runtime.host.beneath import FILE, FOLDER, open_beneath

RESULT_NAME = "result.txt"
_COLLECTED_BYTES = 16 * 1024 * 1024


def write_files(home: Path, files: Mapping[str, bytes]) -> None:
    """Write a driver's *files* into *home*.

    Raises:
        HarnessError: a name leads out of HOME, or through a link.
        HostError: the disk refuses.
    """
    for name, data in files.items():
        try:
            with _folder_of(home, name, create=True) as folder:
                _replace(folder, PurePosixPath(name).name, data)
        except OSError as exc:
            raise HostError("E-HOST-003", f"cannot write {name!r} into {home}: {exc}") from exc


def check_names(names: Iterable[str]) -> None:
    """Check that the files *names* are beneath HOME.

    Raises:
        HarnessError: one is not.
    """
    for name in names:
        _beneath(name)


def collect_files(home: Path, names: Iterable[str]) -> dict[str, bytes]:
    """Return the regular files among *names* in *home*, each cut to 16 MiB; others are left out."""
    found: dict[str, bytes] = {}
    for name in names:
        with contextlib.suppress(OSError), _folder_of(home, name, create=False) as folder:
            found[name] = _read(folder, PurePosixPath(name).name)
    return found


def write_result(out: Path, text: str) -> None:
    """Replace out/result.txt by *text*, durably.

    Raises:
        OSError: the disk, or what the harness left there, refuses.
    """
    folder = os.open(out, FOLDER)
    try:
        _replace(folder, RESULT_NAME, text.encode("utf-8", "replace"))
    finally:
        os.close(folder)


def _replace(folder: int, name: str, data: bytes) -> None:
    """Write a new file and move it over *name*: a link there is replaced, never followed."""
    fresh = f".{name}.{os.getpid()}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with contextlib.suppress(FileNotFoundError):
        os.unlink(fresh, dir_fd=folder)
    with open(os.open(fresh, flags, 0o600, dir_fd=folder), "wb") as file:
        file.write(data)
        file.flush()
        os.fdatasync(file.fileno())
    os.replace(fresh, name, src_dir_fd=folder, dst_dir_fd=folder)


def _read(folder: int, name: str) -> bytes:
    with open(open_beneath(folder, name, FILE), "rb") as file:
        status = os.fstat(file.fileno())
        # One with another name may be a file outside, which the harness could not read itself.
        if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
            raise FileNotFoundError(name)
        return file.read(_COLLECTED_BYTES)


@contextlib.contextmanager
def _folder_of(home: Path, name: str, *, create: bool) -> Generator[int]:
    """Open the folder of the file *name* beneath *home*, made first if it is to *create* one."""
    parts = _beneath(name).parent.parts
    with contextlib.ExitStack() as opened:
        top = os.open(home, FOLDER)
        opened.callback(os.close, top)
        for depth in range(len(parts)) if create else ():
            parent = open_beneath(top, "/".join(parts[:depth]))
            try:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(parts[depth], 0o700, dir_fd=parent)
            finally:
                os.close(parent)
        folder = open_beneath(top, "/".join(parts))
        opened.callback(os.close, folder)
        yield folder


def _beneath(name: str) -> PurePosixPath:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.name:
        raise HarnessError("E-HAR-004", f"the driver named a file outside HOME: {name!r}")
    return path
