"""Give a run's folders to the user that the run has, and take them back.

Where root can show nothing to another user as its own, the private folders of a run belong to that
user while it works. Nothing of it lives when they change hands, and what it left there is hostile:
no link is followed, and a file that has a name elsewhere as well stays whose it is.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from pathlib import Path

from msgspec import Struct

from capsule_runtime.errors import HostError
from capsule_runtime.host.run_users import COUNT, FIRST
from capsule_runtime.host.tree_walk import Found, Walk, open_folder

_MOST_ENTRIES = 5_000_000


class Handing(Struct, frozen=True):
    """Folders of one run that *user* has while it works; None: they stay ours."""

    folders: tuple[Path, ...]
    user: int | None = None

    def give(self) -> None:
        """Give them, and all that is in them, to the user.

        Raises:
            HostError: E-HOST-004, the system refuses.
        """
        if self.user is None:
            return
        try:
            for folder in self.folders:
                with opened(folder) as top:
                    os.chown(top, self.user, self.user)  # First: it tells that there is more.
                    _give_all(top, self.user)
        except OSError as exc:
            raise HostError("E-HOST-004", f"cannot prepare the folders of the run: {exc}") from exc


def take_back(folders: Iterable[Path]) -> None:
    """Have *folders* be ours, and all in them that the user of a run has made.

    Nothing is done where they are ours already, or not there.

    Raises:
        OSError: the system refuses.
    """
    for folder in folders if os.geteuid() == 0 else ():
        with suppress(FileNotFoundError), opened(folder) as top:
            if not _is_runs(os.fstat(top).st_uid):
                continue
            for found in Walk(top, _MOST_ENTRIES):
                if _is_runs(found.status.st_uid):
                    _chown(found, os.geteuid(), os.getegid())
            os.chown(top, os.geteuid(), os.getegid())  # Last: until then there is more to do.


def _give_all(top: int, user: int) -> None:
    names: dict[tuple[int, int], int] = {}
    walk = Walk(top, _MOST_ENTRIES)
    for found in walk:
        status = found.status
        if status.st_uid != os.geteuid() and not _is_runs(status.st_uid):
            continue
        if found.is_folder or status.st_nlink == 1:
            _chown(found, user, user)
            continue
        file = (status.st_dev, status.st_ino)
        names[file] = names.get(file, 0) + 1
        if names[file] == status.st_nlink:  # All its names are here, so it is no file outside.
            _chown(found, user, user)
    if walk.is_cut:
        raise OSError(0, "there is too much in them")


def _chown(found: Found, user: int, group: int) -> None:
    os.chown(found.name, user, group, dir_fd=found.folder, follow_symlinks=False)


def _is_runs(user: int) -> bool:
    return FIRST <= user < FIRST + COUNT


@contextmanager
def opened(folder: Path) -> Generator[int]:
    """Hold *folder* open, which is a folder and no link."""
    top = open_folder(folder)
    try:
        yield top
    finally:
        os.close(top)
