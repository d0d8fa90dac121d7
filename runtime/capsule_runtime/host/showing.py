"""Show a capsule to a run's user that cannot reach it: a copy, which nobody else can read."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from capsule_runtime.errors import HostError
from capsule_runtime.host.capsule import Capsule, Places
from capsule_runtime.host.handing import opened
from capsule_runtime.host.removal import remove_tree
from capsule_runtime.host.rights import is_open_to_others
from capsule_runtime.host.tree_walk import Walk

_MOST_BYTES = 2**30
_MOST_ENTRIES = 1_000_000
_OWNERS, _OWNER_READS = 0o700, 0o500
_TO_GROUP = 3
_CAPSULE, _AGENT = "capsule", "agent"
"""What they are called in the folder of a run."""


def show(capsule: Capsule, places: Places, state: Path, user: int) -> tuple[Capsule, Places]:
    """Return both with what *user* can read: what it cannot reach itself is copied for it.

    Raises:
        HostError: E-HOST-004, it cannot be copied.
    """
    if not capsule.is_bare and not _is_readable(capsule.folder):
        shown = places.run / _CAPSULE
        _copy(capsule.folder, shown, state, user)
        capsule = replace(capsule, folder=shown)
    if not _is_readable(places.agent):
        shown = places.run / _AGENT
        _copy(places.agent, shown, state, user)
        places = replace(places, agent=shown)
    return capsule, places


def remove_copies(run_folder: Path) -> None:
    """Remove what was copied for the run of *run_folder*, if anything was."""
    copies = [name for name in (_CAPSULE, _AGENT) if os.path.lexists(run_folder / name)]
    for name in copies:
        remove_tree(run_folder, name, lambda: False)
    if copies:
        with suppress(OSError):  # It is empty where the run was refused.
            run_folder.rmdir()


def _is_readable(folder: Path) -> bool:
    """Whether any user can reach *folder*, and read all that is in it."""
    if not is_open_to_others(folder):
        return False
    with opened(folder) as top:
        walk = Walk(top, _MOST_ENTRIES)
        modes = [os.fstat(top).st_mode, *(it.status.st_mode for it in walk if not it.is_link)]
    return all(map(_is_read_by_all, modes)) and not walk.is_cut


def _is_read_by_all(mode: int) -> bool:
    needed = stat.S_IROTH | stat.S_IXOTH if stat.S_ISDIR(mode) else stat.S_IROTH
    return mode & needed == needed


def _copy(folder: Path, copy: Path, state: Path, user: int) -> None:
    from capsule_runtime.host.filling import TooLarge  # hardly any run copies its capsule
    from capsule_runtime.host.tree_copy import CopyWish, copy_tree

    index = copy.with_name(f"{copy.name}.index")
    wish = CopyWish(folder, copy, index, state, _MOST_BYTES, (os.geteuid(), user))
    try:
        copy.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        copy_tree(wish, lambda: False)
        index.unlink()
        _open_to_group(copy)
    except (TooLarge, OSError) as exc:
        raise HostError("E-HOST-004", f"{folder} cannot be copied: {exc}") from exc


def _open_to_group(copy: Path) -> None:
    with opened(copy) as top:
        os.fchmod(top, _shared(os.fstat(top).st_mode))
        for found in Walk(top, _MOST_ENTRIES):
            if not found.is_link:
                os.chmod(found.name, _shared(found.status.st_mode), dir_fd=found.folder)


def _shared(mode: int) -> int:
    return (mode & _OWNERS) | ((mode & _OWNER_READS) >> _TO_GROUP)
