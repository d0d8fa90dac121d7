"""Which folders a sealed run is never given, and which cannot be shown together."""

from __future__ import annotations

from capsule_runtime.core.grants import Grants, is_beneath
from capsule_runtime.core.sandbox_plan import Ground, readable
from capsule_runtime.core.seen_places import SeenPlaces
from capsule_runtime.errors import ContainmentError

_SYSTEM = (
    *("/proc", "/sys", "/dev", "/etc", "/boot"),
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64"),
)
_OF_EVERYBODY = ("/", "/home", "/run", "/var")


def check_workdir(ground: Ground) -> None:
    """Refuse a work directory that is the machine's: root's files are shown to it as its own.

    Raises:
        ContainmentError: E-CAP-006.
    """
    path = ground.workdir
    if path in _OF_EVERYBODY or any(is_beneath(path, one) for one in _SYSTEM):
        raise ContainmentError(
            "E-CAP-006",
            f"{path} cannot be the work directory of a sealed run: it belongs to the system",
            "Run it on a folder of your own, or on a copy.",
        )


def check_nesting(ground: Ground, grants: Grants, seen: SeenPlaces) -> None:
    """Refuse grants for which something would be mounted beneath what a harness can write.

    bubblewrap makes what it mounts on, and follows the links that it finds there.

    Raises:
        ContainmentError: E-CAP-003.
    """
    for path in (*grants.read, *grants.write):
        for own in (seen.workdir, seen.home, seen.out):
            if is_beneath(own, path):
                raise _cannot(path, f"the run's own {own} lies in it")
    written = (ground.workdir, *grants.write)
    for path in grants.write:
        for read in readable(ground):
            if path != read and is_beneath(path, read) and _is_in(read, written, path):
                raise _cannot(path, f"it lies in {read}, which the harness may have written")


def _is_in(read: str, written: tuple[str, ...], path: str) -> bool:
    return any(is_beneath(read, one) for one in written if one != path)


def _cannot(path: str, why: str) -> ContainmentError:
    hint = "Grant the folders in it one by one, or have it elsewhere."
    return ContainmentError("E-CAP-003", f"{path} cannot be granted: {why}", hint)
