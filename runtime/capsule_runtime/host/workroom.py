"""Where a run works: its work directory in place, or the copy of it that is made for the run.

runs/RUN/work         the copy, as long as its changes are not collected
runs/RUN/work.index   what it held when it was made, once it was made
runs/RUN/watched      what made tools run something before the launch
runs/RUN/changes*     what was changed (`collecting.py`)
trash/RUN             a copy that nobody needs any more
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from capsule_runtime.core.work import (
    CopyMade,
    WorkChanges,
    WorkdirMode,
    shortened,
    show_path,
)
from capsule_runtime.host.filling import Stopped
from capsule_runtime.host.private_files import make_private_directory
from capsule_runtime.host.removal import remove_tree
from capsule_runtime.host.watched_files import Watched, first_of, look, runner_warnings, warnings_of

if TYPE_CHECKING:
    from capsule_runtime.host.kept_changes import Changes

TRASH = "trash"
_LEFT_SECONDS = 120


def work_folder(run_folder: Path) -> Path:
    """Return where the copy of a run lies."""
    return run_folder / "work"


class Workroom(Struct, frozen=True):
    """The work directory of one run, and what of it is kept. All of it blocks: use a thread."""

    mode: WorkdirMode
    original: Path
    folder: Path
    """Of the run."""
    state: Path
    copies_at_most: float
    owner: tuple[int, int] | None = None
    """Whose a copy is to be, user and group; None for ours."""

    @property
    def place(self) -> Path:
        """Return where the harness works."""
        return work_folder(self.folder) if self.mode == "copy" else self.original

    def prepare(self, stopped: Callable[[], bool]) -> CopyMade | None:
        """Copy the work directory, if it is to be, and note what makes tools run something.

        When this raises, what there is of a copy is on its way out; `discard` removes it.

        Raises:
            Stopped: *stopped* said so.
            TooLarge: it is more than is copied.
            HostError: E-HOST-040, it cannot be copied.
        """
        made: CopyMade | None = None
        if self.mode == "copy":
            from capsule_runtime.host.tree_copy import CopyWish, copy_tree  # most runs copy nothing

            wish = CopyWish(
                self.original,
                self.place,
                self.folder / "work.index",
                self.state,
                self.copies_at_most,
                self.owner,
            )
            try:
                made = copy_tree(wish, stopped)
            except Stopped:
                # Whoever stopped us waits: removing it may take longer than making it.
                self.put_away()
                raise
            except BaseException:
                self.discard()  # on a full disk not even that could be recorded
                raise
        if self.mode != "ro":
            with suppress(OSError):  # what cannot be looked at now has nothing to be compared with
                seen = look(str(self.place), stopped, os.stat(self.state))
                self._watched.touch(mode=0o600)  # others may be let through to where it lies
                self._watched.write_bytes(msgspec.msgpack.encode((_encoded(seen), seen.is_cut)))
        return made

    def collect(self, stopped: Callable[[], bool]) -> WorkChanges | None:
        """Look at what was changed, and keep it if it was in a copy. Nothing may live there.

        None if there is nothing to look at: it was only read, or never begun.

        Raises:
            Stopped: *stopped* said so.
            OSError: the copy is gone, or the disk refuses.
            DecodeError: what was kept of the copy is damaged.
        """
        if self.mode == "ro":
            return None
        if self.mode == "rw":
            return self._warned(WorkChanges(), [], stopped) if self._watched.exists() else None
        # Only copies are collected.
        from capsule_runtime.host.collecting import collect
        from capsule_runtime.host.copy_index import load_index
        from capsule_runtime.host.kept_changes import Kept

        kept = Kept(self.folder)
        changes = kept.load()
        if changes is None:
            index = load_index(self.folder / "work.index")
            if index is None:
                return None
            changes = collect(self.place, index, kept, stopped)
        return self._warned(_told(changes), [one.path for one in changes.changes], stopped)

    def discard(self) -> bool:
        """Remove the copy and what was noted of it; tell whether all of it is gone."""
        self.put_away()
        if self.mode != "copy":
            return True
        trash, is_gone = self.state / TRASH, True
        with suppress(FileNotFoundError):
            for name in os.listdir(trash):
                if name.startswith(f"{self.folder.name}."):
                    is_gone = remove_tree(trash, name, lambda: False) and is_gone
        return is_gone and not os.path.lexists(work_folder(self.folder))

    def put_away(self) -> None:
        """Give the copy a name by which it is nobody's, and forget what was noted of it."""
        for name in ("work.index", "work.index.new", "watched"):
            with suppress(OSError):
                (self.folder / name).unlink()
        if os.path.lexists(work_folder(self.folder)):
            with suppress(OSError):
                make_private_directory(self.state / TRASH)
                name = f"{self.folder.name}.{time.time_ns():x}"
                work_folder(self.folder).rename(self.state / TRASH / name)

    def _warned(
        self, changes: WorkChanges, paths: list[bytes], stopped: Callable[[], bool]
    ) -> WorkChanges:
        try:
            files, was_cut = msgspec.msgpack.decode(
                self._watched.read_bytes(), type=tuple[dict[bytes, str], bool]
            )
            after = look(str(self.place), stopped, os.stat(self.state))
        except (OSError, msgspec.DecodeError):
            return changes  # nobody looked before, so nothing can be told
        before = {os.fsdecode(path): mark for path, mark in files.items()}
        is_whole = not (was_cut or after.is_cut)
        warned = warnings_of(before, after.files, is_whole=is_whole)
        if not is_whole:
            warned += runner_warnings(paths, {one.path for one in warned})
        named, count = first_of(warned)
        return msgspec.structs.replace(
            changes,
            warned=named,
            warned_count=count,
            is_cut=changes.is_cut or (not is_whole and self.mode == "rw"),
        )

    @property
    def _watched(self) -> Path:
        return self.folder / "watched"


def has_trash(state: Path) -> bool:
    """Tell whether there is anything that was to be removed."""
    with suppress(FileNotFoundError), os.scandir(state / TRASH) as entries:
        return any(entries)
    return False


def empty_trash(state: Path) -> None:
    """Remove the copies that somebody was killed over while they removed them."""
    for entry in os.listdir(state / TRASH):
        # Whoever put it there just now is at it.
        if time.time() - _instant_of(entry) > _LEFT_SECONDS:
            remove_tree(state / TRASH, entry, lambda: False)


def _instant_of(name: str) -> float:
    try:
        return int(name.rpartition(".")[2], 16) / 1e9
    except ValueError:
        return 0.0


def _encoded(seen: Watched) -> dict[bytes, str]:
    return {os.fsencode(path): mark for path, mark in seen.files.items()}


def _told(changes: Changes) -> WorkChanges:
    shown = [(show_path(path), why) for path, why in changes.left_out]
    left_out, _ = shortened(shown)
    return WorkChanges(
        tally=changes.tally,
        internal=changes.internal,
        left_out=left_out,
        left_out_count=changes.left_out_count,
        is_cut=changes.is_cut,
    )
