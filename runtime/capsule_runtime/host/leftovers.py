"""The names of cgroups, and the removal of those whose owner died without a word.

What of them still holds a process is killed: its burier, its warden and its supervisor are gone.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from itertools import count
from pathlib import Path
from signal import SIGKILL

# Not from 1: in another process namespace, a process of this number may have begun there too.
_numbers = count(int.from_bytes(os.urandom(3), "big"))
_DYING_SECONDS = 1.0
_PAUSE_SECONDS = 0.01
_NAME = re.compile(r"capsule-([0-9a-f-]{36})-(\d+)-\d+")


@cache
def boot_id() -> str:
    """Return what this boot of the kernel is called."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def new_cage_name() -> str:
    """Return the name of the cgroups of a run; this process gives none twice."""
    return f"capsule-{boot_id()}-{os.getpid()}-{next(_numbers)}"


def remove_leftovers(parents: Iterable[str]) -> int:
    """Remove the cgroups in *parents* whose owners are dead; return how many."""
    removed = 0
    for parent in {parent for parent in parents if parent}:
        with suppress(OSError):  # somebody else's: theirs to clean
            for entry in os.scandir(parent):
                match = _NAME.fullmatch(entry.name)
                if match and not Path("/proc", match[2]).exists():
                    removed += _remove(Path(entry.path))
    return removed


def remove_cage(parents: Iterable[str], name: str) -> None:
    """Kill what is in the cgroups *name* below *parents*, as far as they are there, and remove them."""
    for parent in {parent for parent in parents if parent and name}:
        cgroup = Path(parent, name)
        ends = time.monotonic() + _DYING_SECONDS
        while cgroup.exists() and not _remove(cgroup) and time.monotonic() < ends:
            time.sleep(_PAUSE_SECONDS)  # dying takes a moment, and nobody tells a stranger


def _remove(cgroup: Path) -> bool:
    """Remove *cgroup*, and kill what is in it, unless it is of another process namespace."""
    with suppress(OSError):
        pids = [int(pid) for pid in (cgroup / "cgroup.procs").read_text(encoding="ascii").split()]
        if 0 in pids:
            return False  # it has processes that have no number here
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, SIGKILL)
        cgroup.rmdir()
        return True
    return False
