"""The cgroups of one run: limits that the kernel keeps for the whole tree.

Loaded by path into the warden's bare interpreter: the standard library only. The burier makes them
before it forks the harness, and removes them when nothing is left in them; for a burier that was
killed, the warden does. The lock on each folder tells others that somebody will.
"""

from __future__ import annotations

import fcntl
import os
import select

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    Group = tuple[str, tuple[tuple[str, str], ...]]
    Cgroups = tuple[str, tuple[Group, ...]]

PROCESSES, MEMORY = "processes", "memory"
_SOONEST_MS, _LATEST_MS = 100, 5000
_COUNTS = (b"oom_kill", b"max")
"""The words in an events file before the number that counts, the better one first."""


class Cage:
    """The cgroups of a run, as long as its burier lives."""

    __slots__ = ("_events", "_locks", "_mute", "folders", "pause_ms")

    def __init__(self) -> None:
        self.folders: list[str] = []
        self._locks: list[int] = []
        # What is polled, what it is about, and the file that counts.
        self._events: dict[int, tuple[str, int]] = {}
        # A counter that tells nobody, and how long it may be left alone.
        self._mute = -1
        self.pause_ms: int | None = None

    def make(self, name: str, groups: Iterable[Group]) -> None:
        """Make a cgroup *name* in each place; *groups* are places, and files with their content.

        Raises:
            OSError: the system refuses.
        """
        for parent, settings in groups:
            folder = f"{parent}/{name}"
            os.mkdir(folder, 0o700)
            self.folders.append(folder)
            self._locks.append(os.open(folder, os.O_RDONLY | os.O_CLOEXEC))
            fcntl.flock(self._locks[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
            for file, value in settings:
                write(f"{folder}/{file}", value)
                self._listen(folder, file)

    @property
    def doors(self) -> tuple[str, ...]:
        """Return the files through which a process enters."""
        return tuple(f"{folder}/cgroup.procs" for folder in self.folders)

    @property
    def events(self) -> dict[int, int]:
        """Return the descriptors to poll, and for what."""
        return {
            event: select.POLLPRI if event == counter else select.POLLIN
            for event, (_, counter) in self._events.items()
        }

    def hear(self, event: int) -> tuple[str, int] | None:
        """Return which limit was met, and how often, if *event* says that one was."""
        what, counter = self._events[event]
        times = _times(counter)
        if event != counter:
            os.read(event, 8)
            times = max(1, times)  # It speaks a moment before the kernel counts.
        return (what, times) if times else None

    def look(self) -> tuple[str, int] | None:
        """Return whether the limit that nobody is told of was met, once. The pauses grow."""
        if self.pause_ms is None:
            return None
        if times := _times(self._mute):
            self.pause_ms = None
            return PROCESSES, times
        self.pause_ms = min(2 * self.pause_ms, _LATEST_MS)
        return None

    def met(self) -> list[tuple[str, int]]:
        """Return every limit that was met, and how often."""
        counts = [(what, _times(counter)) for what, counter in self._events.values()]
        if self._mute >= 0:
            counts.append((PROCESSES, _times(self._mute)))
        return [(what, times) for what, times in counts if times]

    def kill(self) -> None:
        """Have the kernel kill all that is inside at once, where it can."""
        for folder in self.folders:
            try:
                write(f"{folder}/cgroup.kill", "1")
            except FileNotFoundError:
                pass  # Only the unified hierarchy of newer kernels can: then the sweep does it.

    def release(self) -> None:
        """Close what is held, and remove the cgroups."""
        counters = (counter for _, counter in self._events.values())
        for descriptor in {*self._locks, *self._events, *counters, self._mute} - {-1}:
            os.close(descriptor)
        self._mute = -1
        self._locks.clear()
        self._events.clear()
        remove(self.folders)

    def _listen(self, folder: str, file: str) -> None:
        """Hear of it when the limit in *file* is met."""
        if file == "pids.max" and os.path.exists(f"{folder}/cgroup.controllers"):
            self._watch(PROCESSES, f"{folder}/pids.events")
        elif file == "pids.max":  # the older kind counts, and tells nobody
            self._mute = os.open(f"{folder}/pids.events", os.O_RDONLY | os.O_CLOEXEC)
            self.pause_ms = _SOONEST_MS
        elif file == "memory.max":
            self._watch(MEMORY, f"{folder}/memory.events")
        elif file == "memory.limit_in_bytes":
            counter = os.open(f"{folder}/memory.oom_control", os.O_RDONLY | os.O_CLOEXEC)
            event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            self._events[event] = (MEMORY, counter)
            write(f"{folder}/cgroup.event_control", f"{event} {counter}")

    def _watch(self, what: str, path: str) -> None:
        counter = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._events[counter] = (what, counter)
        _times(counter)  # What was read once is what changes are told of.


def write(path: str, text: str) -> None:
    """Write *text* into a file of a cgroup, which takes it at once or not at all."""
    file = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(file, text.encode())
    finally:
        os.close(file)


def remove(folders: Iterable[str]) -> None:
    """Remove the cgroups *folders*."""
    for folder in folders:
        try:
            os.rmdir(folder)
        except OSError:
            pass  # What is not empty, or not there yet, is for who looks for leftovers.


def _times(counter: int) -> int:
    """Return the count of refusals or kills in an events file."""
    words = os.pread(counter, 4096, 0).split()
    for word in _COUNTS:
        if word in words:
            return int(words[words.index(word) + 1])
    return 0
