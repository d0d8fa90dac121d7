"""Where the folders of a sealed run lie as the harness sees them."""

from __future__ import annotations

from collections.abc import Container

from msgspec import Struct

_WORKDIRS = ("/work", "/workspace", "/capsule-work")
_HOMES = ("/home/agent", "/home/agent-of-capsule")
_OUTS = ("/out", "/capsule-out")


class SeenPlaces(Struct, frozen=True):
    """The paths of a run's folders inside its own root."""

    workdir: str
    home: str
    out: str
    tmp: str = "/tmp"


def seen_places(taken: Container[str]) -> SeenPlaces:
    """Return the paths, none of which is *taken* by a folder of this machine.

    What the harness may read is shown where it lies, and must not come to lie beneath what it may
    write: a mount there would follow the links that it left.
    """
    workdir, home, out = (
        next((path for path in paths if path not in taken), paths[-1])
        for paths in (_WORKDIRS, _HOMES, _OUTS)
    )
    return SeenPlaces(workdir, home, out)
