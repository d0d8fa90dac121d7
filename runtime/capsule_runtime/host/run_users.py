"""Users of their own for the runs that root starts: numbers that nobody else has.

A number is leased by a lock on a byte of a file that only root opens. All leases of a process are
held by one descriptor; its warden and buriers hold it too. A run whose burial was not proved keeps
its number as long as its supervisor lives, and afterwards as long as a process of it does.
"""

from __future__ import annotations

import fcntl
import os
import struct
from functools import cache
from pathlib import Path

from capsule_runtime.errors import HostError

FIRST, COUNT = 2_000_000_000, 65_536
"""Out of the reach of users, of services and of the ranges that containers are given."""
_PLACES = ("/run/capsule", "/var/lib/capsule")
_TRIES = 1000
_LOCK = struct.Struct("@hhqqi0q")


class RunUsers:
    """The numbers that this process has leased."""

    def __init__(self, file: int) -> None:
        self.file = file
        self._leased: set[int] = set()

    def lease(self) -> int:
        """Return a number that no other run has.

        Raises:
            HostError: E-HOST-033, there is none.
        """
        for _ in range(_TRIES):
            user = FIRST + int.from_bytes(os.urandom(2), "big")
            if user not in self._leased and self._lock(user, fcntl.F_WRLCK):
                if not lives(user):
                    self._leased.add(user)
                    return user
                self._lock(user, fcntl.F_UNLCK)
        raise HostError("E-HOST-033", "no user is free for another run")

    def release(self, user: int) -> None:
        """Give back *user*, unless something of it is left: then it stays leased."""
        if not lives(user):
            self._leased.remove(user)
            self._lock(user, fcntl.F_UNLCK)

    def is_free(self, user: int) -> bool:
        """Return whether no process but this one has *user*."""
        asked = _LOCK.pack(fcntl.F_WRLCK, 0, user - FIRST, 1, 0)
        kind: int = _LOCK.unpack(fcntl.fcntl(self.file, fcntl.F_OFD_GETLK, asked))[0]
        return kind == fcntl.F_UNLCK

    def _lock(self, user: int, kind: int) -> bool:
        try:
            fcntl.fcntl(self.file, fcntl.F_OFD_SETLK, _LOCK.pack(kind, 0, user - FIRST, 1, 0))
        except BlockingIOError:
            return False
        return True


def lives(user: int) -> bool:
    """Return whether any process here has the real user *user*, whoever started it."""
    try:
        os.getpriority(os.PRIO_USER, user)
    except ProcessLookupError:
        return False
    return True


@cache
def run_users() -> RunUsers:
    """Return what this process leases from.

    Raises:
        HostError: E-HOST-033, there is no place for the leases.
    """
    troubles: list[str] = []
    for place in map(Path, _PLACES):
        try:
            place.mkdir(mode=0o711, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            return RunUsers(os.open(place / "users", flags, 0o600))
        except OSError as exc:
            troubles.append(f"{place}: {exc.strerror}")
    raise HostError("E-HOST-033", f"users cannot be leased: {'; '.join(troubles)}")


def leases_of_users() -> tuple[int, ...]:
    """Return the descriptor that holds the leases, if this process makes any."""
    if os.geteuid() != 0:
        return ()
    try:
        return (run_users().file,)
    except HostError:
        return ()  # Whoever needs a user is told so.
