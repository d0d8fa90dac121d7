"""Say where a link leads, step by step inside the folder, without following one outside."""

from __future__ import annotations

from typing import Literal

from repo_report.folder import Folder

Fate = Literal["ok", "broken-link", "looping-link", "outside-link"]

MAX_HOPS = 40


def fate_of(folder: Folder, link: str) -> Fate:
    """Walk the way of *link*.

    Raises: OSError when a directory on the way cannot be read.
    """
    pending = link.split("/")[::-1]
    reached: list[str] = []
    hops = 0
    while pending:
        name = pending.pop()
        if name in ("", "."):
            continue
        if name == "..":
            if not reached:
                return "outside-link"
            reached.pop()
            continue
        path = "/".join([*reached, name])
        try:
            kind = folder.look(path).kind
        except (FileNotFoundError, NotADirectoryError):
            return "broken-link"
        if kind != "link":
            reached.append(name)
            continue
        hops += 1
        target = folder.target(path)
        if hops > MAX_HOPS:
            return "looping-link"
        if target.startswith("/"):
            return "outside-link"
        pending.extend(target.split("/")[::-1])
    return "ok"
