"""Apply collected changes to the folder that was copied: all of them, or none.

Everything new is written into a folder of our own inside of the target first (the stage). Then each
file that is to go is moved there, and each new one is linked from there into its place, which takes
the place of nothing. What was moved is looked at once more: a change that came in between is put
back, with everything else. A stage that somebody killed us over is undone by the next one.

Each place is opened beneath the target, through no link, for each step anew.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import BinaryIO

from capsule_runtime.core.applying import emptied, in_the_way
from capsule_runtime.core.git_patch import LINK_MODE
from capsule_runtime.errors import HostError
from capsule_runtime.host.beneath import FILE, open_beneath, parted
from capsule_runtime.host.changes import Change, Contents, is_there
from capsule_runtime.host.removal import remove_beneath
from capsule_runtime.host.staging import (
    MovedOn,
    current_umask,
    new_name,
    old_name,
    place,
    write_new,
)

NAMED = 20
"""How many of the files that are in the way an error names."""
_CHUNK = 1024 * 1024
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


Numbered = Sequence[tuple[int, Change]]
"""Changes with their places in the whole list: a stage knows them by these numbers."""


@dataclass(slots=True)
class Target:
    """The folder that changes are applied to, held for us alone. *stage* is our name in it."""

    top: int
    stage: str
    _made: list[str] = field(default_factory=list[str])
    """Folders that were not there before, the outer ones first."""
    _gone: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    """Folders that nothing was left in, with their permissions, the inner ones first."""

    def differing(self, changes: Numbered) -> list[str]:
        """Return the paths of *changes* that are no longer what was copied."""
        leaving = {os.fsdecode(change.path) for _, change in changes if change.old is not None}
        paths = [(os.fsdecode(change.path), change) for _, change in changes]
        return [path for path, change in paths if not self._is_as_copied(path, change, leaving)]

    def _is_as_copied(self, path: str, change: Change, leaving: set[str]) -> bool:
        if change.moved_on:
            return False
        try:
            if change.old is not None:
                return Contents(self.top).piece(path) == change.old
            if (blocker := self._blocker(path)) is not None:
                return blocker in leaving
            return not is_there(self.top, path) or self._is_emptied(path)
        except OSError:
            return False

    def _blocker(self, path: str) -> str | None:
        """Return what stands where a folder on the way to *path* should be, if something does."""
        parts = path.split("/")
        for depth in range(1, len(parts)):
            place = "/".join(parts[:depth])
            try:
                if not stat.S_ISDIR(self._status(place).st_mode):
                    return place
            except FileNotFoundError:
                return None
        return None

    def _is_emptied(self, path: str) -> bool:
        """Whether *path* is a folder; only an empty one makes room for a file, later."""
        with suppress(OSError):
            os.close(open_beneath(self.top, path))
            return True
        return False

    def apply(self, changes: Numbered, blobs: BinaryIO) -> None:
        """Apply *changes*, whose new contents are in *blobs*; on any failure, undo all of it.

        Raises:
            MovedOn: the target has changed.
            HostError: E-HOST-042, the disk refuses; E-HOST-043, and what was done stays.
        """
        try:
            for _ in self.steps(changes, blobs):
                pass
        except BaseException as exc:
            self.undo(changes)
            if isinstance(exc, OSError):
                raise HostError("E-HOST-042", f"nothing was applied: {exc}") from exc
            raise

    def steps(self, changes: Numbered, blobs: BinaryIO) -> Generator[None]:
        """Apply *changes* one step at a time. Whoever breaks off is to `undo`.

        Raises:
            MovedOn: the target has changed.
            OSError: the disk refuses.
        """
        os.mkdir(self.stage, 0o700, dir_fd=self.top)
        yield
        yield from self._write_new(changes, blobs)
        yield from self._move_old(changes)
        self._remove_emptied(changes)
        yield
        yield from self._place_new(changes)

    def finish(self) -> None:
        """Remove the stage: what was there before is needed no more."""
        with suppress(OSError):  # what is left of it is for the next one
            remove_beneath(self.top, self.stage, lambda: False)

    @property
    def is_staged(self) -> bool:
        """Whether somebody was killed while they applied the same changes."""
        return is_there(self.top, self.stage)

    def undo(self, changes: Numbered) -> None:
        """Put back what was moved and take away what was placed, as far as any of it was done.

        Raises:
            HostError: E-HOST-043, not all of it could be.
        """
        if not self.is_staged:
            return
        files = {change.path for _, change in changes if change.old is not None}
        ways = in_the_way(files, (change.path for _, change in changes if change.old is None))
        try:
            with self._opened_stage() as stage:
                for number, change in changes:
                    self._take_away(stage, number, os.fsdecode(change.path))
                for folder in (*reversed(self._made), *map(os.fsdecode, ways)):
                    with suppress(OSError):  # somebody put something into it
                        self._at(folder, os.rmdir)
                for folder, mode in reversed(self._gone):
                    self._make_again(folder, mode)
                for number, change in changes:
                    self._put_back(stage, number, os.fsdecode(change.path))
        except OSError as exc:
            raise HostError(
                "E-HOST-043",
                f"what was applied could not be undone: {exc}",
                f"What was there before is in {self.stage}; apply once more to go on undoing it.",
            ) from exc
        self.finish()

    def _take_away(self, stage: int, number: int, path: str) -> None:
        """Remove *path* if it is the file that was placed there."""
        with suppress(FileNotFoundError, NotADirectoryError):
            ours = os.lstat(new_name(number), dir_fd=stage)
            if os.path.samestat(ours, self._status(path)):
                self._at(path, os.unlink)

    def _put_back(self, stage: int, number: int, path: str) -> None:
        """Put back what was moved away from *path*, if anything was."""
        if not is_there(stage, old_name(number)):
            return
        self._make_folders(path)
        with self._parent(path) as (parent, name):
            os.rename(old_name(number), name, src_dir_fd=stage, dst_dir_fd=parent)

    def _make_again(self, folder: str, mode: int) -> None:
        with suppress(FileExistsError):
            self._at(folder, os.mkdir)
        fd = open_beneath(self.top, folder)
        try:
            os.fchmod(fd, mode)
        finally:
            os.close(fd)

    def _remove_emptied(self, changes: Numbered) -> None:
        """Remove the folders that nothing is left in, as git does: a file may take their place."""
        for path in emptied(change.path for _, change in changes if change.new is None):
            folder = os.fsdecode(path)
            with suppress(OSError):
                mode = stat.S_IMODE(self._status(folder).st_mode)
                self._at(folder, os.rmdir)
                self._gone.append((folder, mode))

    def _write_new(self, changes: Numbered, blobs: BinaryIO) -> Generator[None]:
        with self._opened_stage() as stage:
            for number, change in changes:
                if change.new is not None:
                    write_new(stage, new_name(number), change, change.new, blobs)
                    yield

    def _move_old(self, changes: Numbered) -> Generator[None]:
        with self._opened_stage() as stage:
            for number, change in changes:
                if change.old is None:
                    continue
                path = os.fsdecode(change.path)
                with self._parent(path) as (parent, name):
                    os.rename(name, old_name(number), src_dir_fd=parent, dst_dir_fd=stage)
                if Contents(stage).piece(old_name(number)) != change.old:
                    raise MovedOn([path])
                self._keep_mode(stage, number, change)
                yield

    def _keep_mode(self, stage: int, number: int, change: Change) -> None:
        """Let a file keep who may read and write it; who may run it is part of the change."""
        old, new = change.old, change.new
        if old is None or new is None or LINK_MODE in (old.mode, new.mode):
            return
        mode = stat.S_IMODE(os.lstat(old_name(number), dir_fd=stage).st_mode) & 0o777
        if new.mode != old.mode:
            runs = (mode & 0o444) >> 2 & ~current_umask() if new.mode & 0o100 else 0
            mode = mode & 0o666 | runs
        fd = open_beneath(stage, new_name(number), FILE)
        try:
            os.fchmod(fd, mode)
        finally:
            os.close(fd)

    def _place_new(self, changes: Numbered) -> Generator[None]:
        with self._opened_stage() as stage:
            for number, change in changes:
                if change.new is None:
                    continue
                path = os.fsdecode(change.path)
                self._make_folders(path)
                with self._parent(path) as (parent, name):
                    place(stage, new_name(number), parent, name, path)
                yield

    def _make_folders(self, path: str) -> None:
        """Make the folders that *path* lies in, as far as they are not there."""
        parts = path.split("/")[:-1]
        for depth in range(1, len(parts) + 1):
            place = "/".join(parts[:depth])
            with suppress(FileExistsError):
                self._at(place, os.mkdir)  # by the umask, as any program makes one
                self._made.append(place)

    def _status(self, path: str) -> os.stat_result:
        with self._parent(path) as (parent, name):
            return os.lstat(name, dir_fd=parent)

    def _at(self, path: str, act: Callable[..., object]) -> None:
        """Do *act* to the name of *path*, in the folder that it lies in."""
        with self._parent(path) as (parent, name):
            act(name, dir_fd=parent)

    @contextmanager
    def _parent(self, path: str) -> Generator[tuple[int, str]]:
        """Open the folder that *path* lies in, and tell its name there."""
        folder, name = parted(path)
        parent = open_beneath(self.top, folder)
        try:
            yield parent, name
        finally:
            os.close(parent)

    @contextmanager
    def _opened_stage(self) -> Generator[int]:
        stage = open_beneath(self.top, self.stage)
        try:
            if os.fstat(stage).st_uid != os.geteuid():
                raise OSError(errno.EPERM, "it is somebody else's", self.stage)
            yield stage
        finally:
            os.close(stage)
