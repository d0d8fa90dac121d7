"""The last step before a harness: walls around this process, a word with the supervisor, `execve`.

Loaded by path into the warden's bare interpreter: the standard library only. What runs it is the
burier's child, or in a sealed run what that has become in a root of its own.
"""

from __future__ import annotations

import marshal
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    import socket
    from typing import NoReturn

    from capsule_runtime.host.walls import Walls, raise_walls
else:
    # The plain modules bring `enum` and `selectors`: 10 ms on top of a start of 10.
    import _signal as signal
    import _socket as socket

    from walls import raise_walls

MESSAGE_BYTES = 4096
FAILED = 127
DOOR_BACKLOG = 128
GO = marshal.dumps(("go",))

Launch = tuple[list[bytes], dict[bytes, bytes], bytes, "Walls | None", tuple[int, ...]]
"""The program and its arguments, its whole environment, where it works, its walls, and the ports of
its own loopback at which the supervisor is to serve it."""


def become_program(talk: int, launch: Launch) -> NoReturn:
    """Put up the walls of *launch*, have them approved, and turn into its program.

    Without walls nobody is asked. What goes wrong is said to *talk*.
    """
    argv, env, cwd, walls, ports = launch
    failure, step = 0, "walls"
    try:
        report, told = (None, None) if walls is None else raise_walls(walls)
        step = "doors"
        handed = [open_door(port) for port in ports] if told is None else [told]
        step = "chdir"
        os.chdir(cwd)
        present(talk, report, handed)
        if report is not None and not is_approved(talk):
            os._exit(FAILED)
        step = "exec"
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.execve(argv[0], argv, env)
    except OSError as refusal:
        failure = refusal.errno or failure
        if step == "walls":
            step = f"walls: {refusal}"
    finally:
        tell(talk, "failed", failure, step)
        os._exit(FAILED)


def has_rules(launch: Launch) -> bool:
    """Return whether *launch* has walls, and Landlock's rules among them."""
    walls = launch[3]
    return walls is not None and walls[1] is not None


def open_door(port: int) -> int:
    """Return a socket that listens on *port* of this process's own network."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(DOOR_BACKLOG)
    return listener.detach()


def present(talk: int, report: dict[str, object] | None, handed: list[int]) -> None:
    """Say that this process is there and behind what, and hand out what others serve for it."""
    words = marshal.dumps(("here", report))
    if not handed:
        os.write(talk, words)
        return
    rights = b"".join(one.to_bytes(4, sys.byteorder) for one in handed)
    channel = socket.socket(fileno=talk)
    channel.sendmsg([words], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
    channel.detach()
    for one in handed:
        os.close(one)  # The supervisor has its own.


def is_approved(talk: int) -> bool:
    """Return whether this process, which has told what it is behind, may run."""
    try:
        return os.read(talk, MESSAGE_BYTES) == GO
    except ConnectionResetError:
        return False


def tell(supervisor: int, *words: int | str | dict[str, object] | None) -> None:
    """Say *words* to the supervisor at the other end of a socket, if it is there."""
    try:
        os.write(supervisor, marshal.dumps(words))
    except (BrokenPipeError, ConnectionResetError):
        pass  # It died, or does not care any more.
