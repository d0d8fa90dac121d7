"""Which of a run's changes are applied, and which only if the caller says so."""

from __future__ import annotations

from collections.abc import Iterable, Set

_NOWHERE = (b"", b".", b"..")


def is_sound(path: bytes) -> bool:
    """Whether *path* names something beneath the folder that it is relative to."""
    return b"\0" not in path and not any(part in _NOWHERE for part in path.split(b"/"))


def leads_out(path: bytes, target: bytes) -> bool:
    """Whether a link at *path* with this *target* may lead out of the folder that holds it.

    Steps up count only at the beginning: behind another name they may start from anywhere.
    """
    parts = [part for part in target.split(b"/") if part not in (b"", b".")]
    ups = next((at for at, part in enumerate(parts) if part != b".."), len(parts))
    is_odd = not target or b"\0" in target or b".." in parts[ups:]
    return target.startswith(b"/") or is_odd or ups > path.count(b"/")


def emptied(paths: Iterable[bytes]) -> list[bytes]:
    """Return the folders that may be empty once the files *paths* are gone, the deepest first."""
    folders: set[bytes] = set()
    for path in paths:
        while b"/" in path:
            path = path.rpartition(b"/")[0]
            folders.add(path)
    return sorted(folders, key=lambda folder: (-folder.count(b"/"), folder))


def in_the_way(files: Set[bytes], added: Iterable[bytes]) -> list[bytes]:
    """Return the folders of *added* files that stand where *files* were, the deepest first."""
    folders = emptied(added)
    return [it for it in folders if it in files or not files.isdisjoint(emptied([it]))]
