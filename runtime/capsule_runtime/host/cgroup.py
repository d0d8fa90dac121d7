"""The cgroups of one run: limits that the kernel keeps for the whole tree.

Loaded by path into the warden's bare interpreter: the standard library only. The child that becomes
the harness makes them and enters; the burier removes them when nothing is left inside, or the warden
for a burier that was killed. `Cgroups` are their name, and for each the folder that it is made in and
what is written into which of its files.
"""

from __future__ import annotations

import errno
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    Group = tuple[str, tuple[tuple[str, str], ...]]
    Cgroups = tuple[str, tuple[Group, ...]]

COUNTERS = {
    "memory.max": ("memory.events", "memory", b"oom_kill"),
    "memory.limit_in_bytes": ("memory.oom_control", "memory", b"oom_kill"),
    "pids.max": ("pids.events", "processes", b"max"),
}
"""By the file of a limit: the file that counts how often it was met, which limit that is, and the
word before the number."""


def folders(cgroups: Cgroups) -> Iterator[str]:
    name, groups = cgroups
    return (f"{parent}/{name}" for parent, _ in groups)


def make(cgroups: Cgroups) -> None:
    """Make the cgroups with their limits, and enter them.

    Raises:
        OSError: the system refuses.
    """
    if (unified := make_for_child(cgroups)) is not None:
        write(f"{unified}/cgroup.procs", "0")


def make_for_child(cgroups: Cgroups) -> str | None:
    """Do what `make` does, but return the folder of the unified one, if that is among them.

    The kernel moves a whole process only once no process anywhere is about to fork or to end, which
    takes it 10 ms. The older cgroups take a thread too, and the thread that asks needs no wait. Into
    the unified one a child can be born: see `fork_sibling_into`.

    Raises:
        OSError: the system refuses.
    """
    unified = None
    for folder, (_, settings) in zip(folders(cgroups), cgroups[1], strict=True):
        os.mkdir(folder, 0o700)
        for file, value in settings:
            write(f"{folder}/{file}", value)
        try:
            write(f"{folder}/tasks", "0")  # We have one thread only.
        except FileNotFoundError:
            unified = folder
    return unified


def met(cgroups: Cgroups) -> list[tuple[str, int]]:
    """Return every limit that was met, and how often."""
    found: list[tuple[str, int]] = []
    for folder, (_, settings) in zip(folders(cgroups), cgroups[1], strict=True):
        for file, _ in settings:
            if file in COUNTERS:
                counter, what, word = COUNTERS[file]
                if times := _count(f"{folder}/{counter}", word):
                    found.append((what, times))
    return found


def kill(cgroups: Cgroups) -> None:
    """Have the kernel kill all that is inside at once, where it can."""
    for folder in folders(cgroups):
        try:
            write(f"{folder}/cgroup.kill", "1")
        except FileNotFoundError:
            pass  # Only the unified hierarchy of newer kernels can: then the sweep does it.


def release(cgroups: Cgroups) -> list[tuple[str, int]]:
    """Remove the cgroups, and return the limits that were met."""
    found = met(cgroups)
    for folder in folders(cgroups):
        try:
            os.rmdir(folder)
        except OSError:
            pass  # What is not empty, or was never made, is for who looks for leftovers.
    return found


def write(path: str, text: str) -> None:
    """Write *text* into a file of a cgroup, which takes it at once or not at all."""
    file = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(file, text.encode())
    finally:
        os.close(file)


def _count(path: str, word: bytes) -> int:
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return 0
    try:
        return count_in(file, word)
    finally:
        os.close(file)


def count_in(file: int, word: bytes) -> int:
    """Return the number behind *word* in an open file of counters; 0 when its cgroup is gone."""
    try:
        words = os.read(file, 4096).split()
    except OSError as gone:
        if gone.errno != errno.ENODEV:
            raise
        return 0
    return int(words[words.index(word) + 1]) if word in words else 0
