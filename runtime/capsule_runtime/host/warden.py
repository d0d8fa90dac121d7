"""The warden: the one process of a supervisor that starts everything, and the last to leave.

Run as `python -I -S warden.py REQUESTS SUPERVISOR LOCK SOCKET [LEASES]`: an inherited SEQPACKET
socket, the supervisor's pid, two paths, and an inherited descriptor that holds the users of runs.
This file takes what the warden holds, in an order that
matters; `watch` says what it does then, and `burier` what it forks for each run.

* It is a subreaper: what a killed burier was the parent of becomes a child of the warden.
* It holds a shared OFD lock on LOCK, and so does each burier, by the descriptor that it inherits;
  a harness never does. Whoever gets the exclusive lock knows that every tree of this supervisor
  is buried. Shared, because the buriers of a killed warden live on beside the next warden.
* The supervisor's life is a pidfd; a socket alone may be held open by a child that the
  supervisor's program forked. The order is lifeline, lock, lifeline again: who finds the
  supervisor dead and LOCK free can be sure that nothing will be started any more.
"""

from __future__ import annotations

import fcntl
import gc
import os
import select
import struct
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket

    from capsule_runtime.host.linux import become_reaper
    from capsule_runtime.host.watch import Watch
else:
    import _socket as socket  # `socket` brings `selectors` and more: 7 ms on top of a start of 10.

    # Isolated mode leaves the script's own directory out.
    sys.path.append(os.path.dirname(os.path.abspath(__file__)))
    from linux import become_reaper
    from watch import Watch


def main() -> None:
    requests, supervisor, lock, path, *leases = sys.argv[1:]
    become_reaper(b"capsule-warden")
    os.set_inheritable(int(requests), False)
    lifeline = open_lifeline(int(supervisor))
    if lifeline is None:
        return
    held = (take_lock(lock), *map(int, leases))
    for lease in held:
        os.set_inheritable(lease, False)
    if is_dead(lifeline):
        return
    watch = Watch(int(requests), lifeline, held, (listen(path), write_key(f"{path}.key")))
    # What is collected is touched, and what is touched is copied in every burier.
    gc.disable()
    gc.freeze()
    watch.keep()
    os.unlink(path)
    os.unlink(f"{path}.key")


def open_lifeline(supervisor: int) -> int | None:
    """Return a pidfd of *supervisor*; none when it died before we could hold it."""
    try:
        lifeline = os.pidfd_open(supervisor)
    except ProcessLookupError:
        return None
    return lifeline if os.getppid() == supervisor else None


def is_dead(lifeline: int) -> bool:
    poll = select.poll()
    poll.register(lifeline, select.POLLIN)
    return bool(poll.poll(0))


def take_lock(path: str) -> int:
    """Hold the shared lock on *path* until the last process that inherits it is gone."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    fcntl.fcntl(lock, fcntl.F_OFD_SETLK, struct.pack("hhqqi0q", fcntl.F_RDLCK, 0, 0, 0, 0))
    return lock


def write_key(path: str) -> bytes:
    """Leave at *path* what a visitor must know. A harness may reach the socket; it reads no state."""
    key = os.urandom(16).hex().encode()
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.open(path, flags, 0o600)
    os.write(file, key)
    os.close(file)
    return key


def listen(path: str) -> int:
    """Return a listening socket at *path*, which may be longer than a socket address can be."""
    directory = os.open(os.path.dirname(path), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    address = f"/proc/self/fd/{directory}/{os.path.basename(path)}"
    try:
        os.unlink(address)
    except FileNotFoundError:
        pass  # No earlier warden of this supervisor was killed.
    listener = socket.socket(
        socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
    )
    listener.bind(address)
    listener.listen()
    os.close(directory)
    return listener.detach()


if __name__ == "__main__":
    main()
