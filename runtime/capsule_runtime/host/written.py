"""Names that lead through what a harness may have written: a link there may lead anywhere."""

from __future__ import annotations

import os
from collections.abc import Sequence

from capsule_runtime.core.grants import is_beneath

_LINKS_AT_MOST = 40


def leads_through(path: str, written: Sequence[str]) -> bool:
    """Whether something is looked up in one of the *written* folders on the way to *path*.

    *path* is absolute; the folders are without links.
    """
    here, names, links = "/", path.split("/")[::-1], 0
    while names:
        name = names.pop()
        if name in ("", "."):
            continue
        if name == "..":
            here = os.path.dirname(here)
            continue
        if any(is_beneath(here, folder) for folder in written):
            return True
        there = os.path.join(here, name)
        if not os.path.islink(there):
            here = there
            continue
        links += 1
        if links > _LINKS_AT_MOST:
            return True
        text = os.readlink(there)
        names += text.split("/")[::-1]
        here = "/" if text.startswith("/") else here
    return False
