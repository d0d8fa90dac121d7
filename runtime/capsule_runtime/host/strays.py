"""Kill what carries a run's name in its environment. The last resort.

While there are no walls, a harness can SIGKILL both its burier and the warden. What it started is
then nobody's child, but still carries the name it was started with, unless it took care to lose it.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import anyio

from capsule_runtime.host.run_users import COUNT, FIRST

SEARCH_SECONDS = 5.0
_PAUSE_SECONDS = 0.02


async def kill_strays(run: str) -> int:
    """Kill every process that was started for *run*, until there is none; return how many."""
    killed: set[int] = set()
    ends = time.monotonic() + SEARCH_SECONDS
    while (found := _strays(run)) and time.monotonic() < ends:
        killed.update(pid for pid in found if _kill(pid, run))
        await anyio.sleep(_PAUSE_SECONDS)  # dying takes a moment, and nobody tells a stranger
    return len(killed)


def _strays(run: str) -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if _carries(entry, run)]


def _carries(process: Path, run: str) -> bool:
    """Whether *process* lives and was started with the name of *run*; kernel threads have none."""
    if not process.name.isdigit():
        return False
    with suppress(OSError):
        return f"CAPSULE_RUN={run}".encode() in environ_of(process).split(b"\0")
    return False


def environ_of(process: Path) -> bytes:
    """Return the environment that *process*, a folder of /proc, was started with.

    Root that may not look into everybody looks as the user of a run into what is of that user.

    Raises:
        OSError: it has ended, or is none of our business.
    """
    found = process.stat()
    if os.geteuid() != 0 or not FIRST <= found.st_uid < FIRST + COUNT:
        return (process / "environ").read_bytes()
    # Few runs end in a search, and fewer at the hands of root.
    from capsule_runtime.host.caller import may_read_everything
    from capsule_runtime.host.metadata import Identity, acting_as

    theirs = None if may_read_everything() else Identity(found.st_uid, found.st_gid)
    with acting_as(theirs):
        return (process / "environ").read_bytes()


def _kill(pid: int, run: str) -> bool:
    """Kill *pid* if it still is what was found: a number may be given to another process."""
    with suppress(ProcessLookupError):
        process = os.pidfd_open(pid)
        try:
            if _carries(Path("/proc", str(pid)), run):
                signal.pidfd_send_signal(process, signal.SIGKILL)
                return True
        finally:
            os.close(process)
    return False
