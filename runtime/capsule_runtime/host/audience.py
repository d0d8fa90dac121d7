"""Who is followed from other processes.

To ring a bell is a system call, and with it the writer loses its turn at the interpreter: with 200
runs 10 000 times a second, for nobody. So a follower writes the run's id behind all others into a
file of the run's owner, and the owner, which looks at that file's size once a commit, rings only
for those. A follower tells first and reads then: what is committed after it has read rings.
"""

from __future__ import annotations

import os
from pathlib import Path

from capsule_runtime.host.private_files import open_private_file

_READ_BYTES = 64 * 1024


class Audience:
    """The runs of one owner that somebody follows, or followed once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = open_private_file(path)
        self._heard_bytes = 0
        self._cut = b""
        self._runs: set[str] = set()

    def add(self, run: str) -> None:
        """Ring for *run* from now on, whoever follows it."""
        self._runs.add(run)

    def runs(self) -> set[str]:
        """Return the ids of the runs to ring for, as of now."""
        if os.fstat(self._fd).st_size > self._heard_bytes:
            # At most this much a commit: whoever fills the file must not hold up the log.
            news = os.pread(self._fd, _READ_BYTES, self._heard_bytes)
            self._heard_bytes += len(news)
            *ids, self._cut = (self._cut + news).split(b"\n")
            self._runs.update(id.decode("ascii", "replace") for id in ids)
        return self._runs

    def close(self) -> None:
        """Remove the file: nobody rings any more."""
        self._path.unlink(missing_ok=True)
        os.close(self._fd)


def attend(path: Path, run: str) -> bool:
    """Tell the owner whose audience is at *path* that *run* is followed; False if that failed."""
    try:
        # Not created: an owner that is gone has taken it along.
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.write(fd, f"{run}\n".encode()) > len(run)
    except OSError:
        return False
    finally:
        os.close(fd)
