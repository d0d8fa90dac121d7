"""Kill everything below this process, however it forked, detached or ignores signals.

Loaded by path into the warden's bare interpreter: the standard library only, imports that cost
nothing. The rules:

* The caller is a subreaper, so whatever a descendant does, it stays a descendant: an orphan is
  adopted by its nearest living subreaper, and the last of those is the caller.
* Stop before killing. What is stopped does not fork, so a walk that meets nobody new has seen
  the whole tree. Then kill children before their parents: the end of a parent makes an orphaned
  process group, and the kernel would continue its stopped members.
* A pid is only a number. A pidfd is opened first, then the process is shown to be a child of
  something already known to be ours; the signal goes through the pidfd. A pid that was reused
  in between gets nothing.
* One strike is not a proof. The caller reaps, and strikes again, until it has no child left.
"""

from __future__ import annotations

import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Container
else:
    import _signal as signal  # `signal` brings `enum`: 4 ms of a 10 ms start.

SWEEP_SECONDS = 10.0
PAUSE_SECONDS = 0.02
PAUSE_WHEN_LATE_SECONDS = 1.0
WALKS_AT_MOST = 100

# Fields of /proc/<pid>/stat, counted from behind the command's closing parenthesis.
STATE, PARENT, THREADS, START = 0, 1, 17, 19


class Sweep:
    """The killing of one tree: `press` it, and reap, until nothing is left."""

    __slots__ = ("_due", "_killed", "_self", "_spared", "_started", "left")

    def __init__(self, spared: Container[int] = (), *, after_all: bool = False) -> None:
        """*after_all*: what is to die has been killed already, and has a moment to be gone."""
        self._self = os.getpid()
        self._spared = spared
        self._started = time.monotonic()
        self._due = self._started + (PAUSE_SECONDS if after_all else 0)
        self._killed: set[tuple[int, bytes]] = set()
        self.left = 0

    @property
    def killed(self) -> int:
        return len(self._killed)

    @property
    def milliseconds(self) -> int:
        return round((time.monotonic() - self._started) * 1000)

    @property
    def late(self) -> bool:
        return time.monotonic() - self._started > SWEEP_SECONDS

    @property
    def pause_ms(self) -> int:
        """Return how long the caller may wait for deaths before it presses again."""
        return max(0, round((self._due - time.monotonic()) * 1000))

    def press(self) -> None:
        """Strike, unless the last strike is too recent for its victims to have gone."""
        began = time.monotonic()
        if began < self._due:
            return
        self.left = self._strike()
        ended = time.monotonic()
        pause = PAUSE_WHEN_LATE_SECONDS if self.late else PAUSE_SECONDS
        # Dying takes the processors too: looking at a large tree gets a third of the time.
        self._due = ended + max(pause, 2 * (ended - began))

    def _strike(self) -> int:
        tree: dict[int, bytes] = {}
        for _ in range(WALKS_AT_MOST):
            if not self._walk(tree):
                break
        return sum(self._kill(pid, start) for pid, start in reversed(tree.items()))

    def _walk(self, tree: dict[int, bytes]) -> bool:
        """Stop everybody below who is not in *tree* yet, add them, and say if there was one."""
        known = len(tree)
        seen: set[int] = set()
        families = None if HAS_CHILDREN_FILE else scan_families()
        parents = [self._self]
        for parent in parents:
            found = children(parent) if families is None else families.get(parent, [])
            found = [pid for pid in found if pid not in self._spared]
            if fresh := [pid for pid in found if pid not in tree]:
                self._stop(fresh, parent, tree)
            parents += [pid for pid in found if pid in tree and pid not in seen]
            seen.update(found)
        return len(tree) > known

    def _stop(self, pids: list[int], parent: int, tree: dict[int, bytes]) -> None:
        parent_fd = open_process(parent)
        if parent_fd is None:
            return
        try:
            ours = parent == self._self or read_stat(parent)[START:] == [tree[parent]]
            for pid in pids if ours else ():
                stat = stop_child(pid, parent, parent_fd)
                if stat:
                    tree[pid] = stat[START]
        finally:
            os.close(parent_fd)

    def _kill(self, pid: int, start: bytes) -> bool:
        """Kill the process *pid* that began at *start*; return whether it was alive."""
        process = open_process(pid)
        if process is None:
            return False
        try:
            stat = read_stat(pid)
            if stat[START:] != [start] or is_dead(stat):
                return False
            if send(process, signal.SIGKILL):
                self._killed.add((pid, start))
            return True
        finally:
            os.close(process)


def children(pid: int) -> list[int]:
    """Return the children that the threads of *pid* list; none when it is gone."""
    if not HAS_CHILDREN_FILE:
        return scan_families().get(pid, [])
    found: list[int] = []
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except (FileNotFoundError, ProcessLookupError):
        return found
    for thread in threads:
        found += map(int, read(f"/proc/{pid}/task/{thread}/children").split())
    return found


def scan_families() -> dict[int, list[int]]:
    """Return the children of every process, for kernels without a `children` file."""
    families: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (stat := read_stat(int(name))):
            families.setdefault(int(stat[PARENT]), []).append(int(name))
    return families


def stop_child(pid: int, parent: int, parent_fd: int) -> list[bytes]:
    """Stop *pid* if it is a child of *parent* right now; return its stat, else nothing."""
    process = open_process(pid)
    if process is None:
        return []
    try:
        stat = read_stat(pid)
        # The parent not being reaped yet, its number was its own while the stat was read.
        if not stat or int(stat[PARENT]) != parent or not send(parent_fd, 0):
            return []
        send(process, signal.SIGSTOP)
        return stat
    finally:
        os.close(process)


def send(process: int, signum: int) -> bool:
    """Signal a pidfd; return whether it still names a process, allowed or not."""
    try:
        signal.pidfd_send_signal(process, signum)
    except ProcessLookupError:
        return False
    except PermissionError:
        return signum == 0
    return True


def open_process(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return None


def read_stat(pid: int) -> list[bytes]:
    """Return the fields of *pid* from its state up to its start time; none when it is gone."""
    line = read(f"/proc/{pid}/stat")
    return line[line.rfind(b")") + 2 :].split(None, START + 1)[: START + 1]


def is_dead(stat: list[bytes]) -> bool:
    # A first thread that has ended looks the same while others of its process live on.
    return stat[STATE] in b"ZX" and int(stat[THREADS]) <= 1


def read(path: str) -> bytes:
    """Return what a file of /proc holds now; nothing when its process is gone."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, ProcessLookupError):
        return b""
    try:
        parts = [os.read(file, 65536)]
        while parts[-1]:
            parts.append(os.read(file, 65536))
    except ProcessLookupError:
        return b""
    finally:
        os.close(file)
    return b"".join(parts)


HAS_CHILDREN_FILE = os.path.exists(f"/proc/self/task/{os.getpid()}/children")
