"""Copy a work directory for a run: its own files, to change as it likes.

Copy-on-write where the file system can, holes kept, links copied as links. What is neither file,
folder nor link is left out, and so is what may not be read or belongs to another file system. Each
file's identity here and there is kept, by which the changes are found later without reading it all.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from capsule_runtime.core.units import show_size
from capsule_runtime.core.work import CopyMade, shortened, show_path
from capsule_runtime.errors import HostError
from capsule_runtime.host.beneath import FILE, open_beneath, parted
from capsule_runtime.host.copy_index import Copied, CopyIndex, identity_of
from capsule_runtime.host.filling import BLOCK, Filler, Stopped, TooLarge
from capsule_runtime.host.tree_walk import Found, Walk, open_folder, why_not

MOST_ENTRIES = 1_000_000
_CLOCK_COARSE = 5
"""The clock by which file systems date a change."""
_KEPT_BITS = 0o777
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_TICKS = 50
_CHANGED = "it changed while it was copied"


@dataclass(frozen=True, slots=True)
class CopyWish:
    """What is to be copied, and where to."""

    original: Path
    copy: Path
    index: Path
    state: Path
    """Left out if it lies in the original, as the copy does that is made there."""
    most_bytes: float
    owner: tuple[int, int] | None = None
    """Whose the copy is to be, user and group; None for ours."""


def copy_tree(wish: CopyWish, stopped: Callable[[], bool]) -> CopyMade:
    """Copy a work directory to where there is nothing yet, and write the index last.

    What was made is not removed when this raises.

    Raises:
        TooLarge: there is more than is copied.
        Stopped: *stopped* said so.
        HostError: E-HOST-040, it cannot be read, or the disk refuses.
    """
    try:
        source = open_folder(os.path.realpath(wish.original))
        try:
            wish.copy.mkdir(0o700)
            target = open_folder(wish.copy)
            try:
                return _Copying(wish, source, target, stopped).copy()
            finally:
                os.close(target)
        finally:
            os.close(source)
    except OSError as exc:
        raise HostError(
            "E-HOST-040",
            f"the work directory {wish.original} cannot be copied: {exc}",
            "Make room for it, or let the run work in place with --workdir-mode rw.",
        ) from exc


class _Copying:
    def __init__(
        self, wish: CopyWish, source: int, target: int, stopped: Callable[[], bool]
    ) -> None:
        self._wish = wish
        self._source = source
        self._target = target
        self._stopped = stopped
        self._state = os.stat(wish.state)
        self._filler = Filler(stopped)
        self._bytes = 0
        self._entries: list[Copied] = []
        self._folders: list[Found] = []
        self._left_out: dict[str, str] = {}
        self._into = -1
        self._walk = Walk(source, MOST_ENTRIES, enters=self._enters, stopped=stopped)

    def copy(self) -> CopyMade:
        try:
            self._take_all()
        finally:
            self._close()
        if self._stopped():
            raise Stopped
        if self._walk.is_cut:
            raise TooLarge(f"it holds more than {MOST_ENTRIES} entries")
        if why := self._walk.unseen.get(""):
            raise OSError(errno.EACCES, why)
        for found in reversed(self._folders):
            self._finish_folder(found)
        if self._wish.owner is not None:
            os.chown(self._target, *self._wish.owner)
        self._wait_for_the_clock()
        self._left_out.update(self._walk.unseen)
        top = os.fstat(self._source)
        index = CopyIndex(
            os.fsencode(self._wish.original),
            top.st_dev,
            top.st_ino,
            tuple(self._entries),
            tuple(map(os.fsencode, self._left_out)),
        )
        index.save(self._wish.index)
        files = sum(entry.kind == "f" for entry in self._entries)
        left_out = [(show_path(os.fsencode(path)), why) for path, why in self._left_out.items()]
        return CopyMade(files, self._bytes, self._filler.cloned, *shortened(left_out))

    def _take_all(self) -> None:
        place: str | None = None
        for found in self._walk:
            if self._stopped():
                raise Stopped
            folder, _ = parted(found.path)
            if folder != place:
                self._enter(folder)
                place = folder
            try:
                self._take(found)
            except FileExistsError:  # seen twice: somebody renames things meanwhile
                self._left_out[found.path] = _CHANGED

    def _enter(self, folder: str) -> None:
        self._close()
        self._into = open_beneath(self._target, folder)

    def _close(self) -> None:
        if self._into >= 0:
            os.close(self._into)
            self._into = -1

    def _enters(self, found: Found) -> bool:
        return found.path not in self._left_out

    def _take(self, found: Found) -> None:
        if found.is_folder:
            self._take_folder(found)
        elif found.is_file:
            self._take_file(found)
        elif found.is_link:
            self._take_link(found)
        else:
            self._left_out[found.path] = "it is neither file nor folder nor link"

    def _take_folder(self, found: Found) -> None:
        if os.path.samestat(found.status, self._state):
            self._left_out[found.path] = "it is the state directory"
            return
        os.mkdir(found.name, 0o700, dir_fd=self._into)
        self._folders.append(found)
        self._keep("d", found.path, found.status, found.status)

    def _take_link(self, found: Found) -> None:
        try:
            target = os.readlink(found.name, dir_fd=found.folder)
        except OSError:  # gone, or no link any more
            self._left_out[found.path] = _CHANGED
            return
        os.symlink(target, found.name, dir_fd=self._into)
        times = (found.status.st_atime_ns, found.status.st_mtime_ns)
        if self._wish.owner is not None:
            os.chown(found.name, *self._wish.owner, dir_fd=self._into, follow_symlinks=False)
        os.utime(found.name, ns=times, dir_fd=self._into, follow_symlinks=False)
        self._keep("l", found.path, os.lstat(found.name, dir_fd=self._into), found.status)

    def _take_file(self, found: Found) -> None:
        try:
            source = open_beneath(found.folder, found.name, FILE)
        except FileNotFoundError:
            return
        except OSError as exc:
            self._left_out[found.path] = why_not(exc)
            return
        try:
            before = os.fstat(source)
            if not stat.S_ISREG(before.st_mode):
                self._left_out[found.path] = _CHANGED
                return
            target = os.open(found.name, _NEW, 0o600, dir_fd=self._into)
            try:
                self._count(before)
                self._filler.fill(source, target, before)
                self._dress(target, before)
                self._keep("f", found.path, os.fstat(target), before)
            finally:
                os.close(target)
        finally:
            os.close(source)

    def _dress(self, fd: int, status: os.stat_result) -> None:
        """Give the file or folder *fd* the owner, mode and times it is to have."""
        if self._wish.owner is not None:
            os.chown(fd, *self._wish.owner)
        os.fchmod(fd, status.st_mode & _KEPT_BITS)
        os.utime(fd, ns=(status.st_atime_ns, status.st_mtime_ns))

    def _finish_folder(self, found: Found) -> None:
        fd = open_beneath(self._target, found.path)
        try:
            self._dress(fd, found.status)
        finally:
            os.close(fd)

    def _keep(self, kind: str, path: str, here: os.stat_result, there: os.stat_result) -> None:
        mode = there.st_mode & _KEPT_BITS
        self._entries.append(
            Copied(os.fsencode(path), kind, mode, identity_of(here), identity_of(there))
        )

    def _count(self, status: os.stat_result) -> None:
        self._bytes += min(status.st_size, status.st_blocks * BLOCK)
        if self._bytes > self._wish.most_bytes:
            raise TooLarge(f"it holds more than {show_size(int(self._wish.most_bytes))}")

    def _wait_for_the_clock(self) -> None:
        """Let the clock of the file system tick: what is changed from now on is told by its date."""
        last = max((entry.here[3] for entry in self._entries if entry.kind != "d"), default=0)
        for _ in range(_TICKS):
            if time.clock_gettime_ns(_CLOCK_COARSE) > last:
                return
            time.sleep(0.001)
