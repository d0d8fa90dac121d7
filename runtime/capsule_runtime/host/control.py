"""The doorbell of a supervisor: another process rings it after it wrote a request.

The datagram carries nothing: what is asked stands in the database, and a lost ring costs at most
`POLL_SECONDS`. The socket lies in the state directory, which only its owner and root can enter.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Generator
from pathlib import Path

import anyio

POLL_SECONDS = 1.0
_SURE_LOOKS = 8
"""Of so many looks one asks the database itself; the others cost one `stat`."""


class Doorbell:
    """The owner's end. When it is `rung`, and every `POLL_SECONDS`, look into the database."""

    def __init__(
        self,
        door: socket.socket,
        data_version: Callable[[], int],
        write_stamp: Callable[[], object],
    ) -> None:
        self._door = door
        self._data_version = data_version
        self._write_stamp = write_stamp
        self._seen = -1
        self._stamp: object = None
        self._looks = 0

    async def rung(self) -> None:
        """Return when somebody rang."""
        await anyio.wait_readable(self._door)
        self.take_rings()

    def has_changed(self) -> bool:
        """Say whether anybody wrote to the database since the last look."""
        stamp, seen = self._write_stamp(), self._stamp
        self._stamp, self._looks = stamp, self._looks + 1
        # Two writes within one tick of the clock may leave the same stamp.
        if stamp == seen and self._looks % _SURE_LOOKS:
            return False
        version = self._data_version()
        changed, self._seen = version != self._seen, version
        return changed

    def take_rings(self) -> int:
        """Return how many rings were waiting."""
        rings = 0
        with contextlib.suppress(BlockingIOError):
            while True:
                self._door.recv(16)
                rings += 1
        return rings


@contextlib.contextmanager
def open_doorbell(
    path: Path, data_version: Callable[[], int], write_stamp: Callable[[], object]
) -> Generator[Doorbell]:
    """Hang the doorbell at *path* for as long as the block lasts."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as door:
        door.setblocking(False)
        with _short(path) as short:
            door.bind(short)
        try:
            yield Doorbell(door, data_version, write_stamp)
        finally:
            path.unlink(missing_ok=True)


def ring_owner(path: Path) -> bool:
    """Ring the doorbell at *path*; False when nobody is there to hear it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as bell:
        bell.setblocking(False)
        try:
            with _short(path) as short:
                bell.sendto(b"!", short)
        except BlockingIOError:
            return True  # so many rings are waiting that one more adds nothing
        except (ConnectionRefusedError, FileNotFoundError):
            return False
    return True


@contextlib.contextmanager
def _short(path: Path) -> Generator[str]:
    """Yield a name for *path* that fits into a socket address, however deep its folder lies."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
