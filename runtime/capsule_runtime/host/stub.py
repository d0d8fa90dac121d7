"""The last step before a harness: walls around this process, a word with the supervisor, `execve`.

Loaded by path: the standard library only. The burier's child imports it. In a sealed run it is the
program that bubblewrap starts in the new root: `python -I -S -E stub.py TALK SPEC`, where TALK is
the child's end of the `Handshake` and SPEC a memfd that says what to run.
"""

from __future__ import annotations

import marshal
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from typing import NoReturn

    from capsule_runtime.host.walls import Walls, raise_walls
else:
    import _signal as signal  # `signal` brings `enum`: 4 ms of a 10 ms start.

    if __name__ == "__main__":
        # Isolated mode leaves the script's own directory out.
        sys.path.append(os.path.dirname(os.path.abspath(__file__)))
    from walls import raise_walls

MESSAGE_BYTES = 4096
FAILED = 127
GO = marshal.dumps(("go",))

Launch = tuple[list[bytes], dict[bytes, bytes], bytes, "Walls | None"]
"""The program and its arguments, its whole environment, where it works, and its walls."""


def main() -> NoReturn:
    talk, spec = map(int, sys.argv[1:])
    try:
        with open(spec, "rb") as file:
            launch = marshal.loads(file.read())
        os.closerange(max(talk, spec) + 1, os.sysconf("SC_OPEN_MAX"))
        os.set_inheritable(talk, False)
    except (OSError, ValueError, EOFError, TypeError) as trouble:
        tell(talk, "failed", 0, f"stub: {trouble}")
        os._exit(FAILED)
    become_program(talk, launch)


def become_program(talk: int, launch: Launch) -> NoReturn:
    """Put up the walls of *launch*, have them approved, and turn into its program.

    Without walls nobody is asked. What goes wrong is said to *talk*.
    """
    argv, env, cwd, walls = launch
    failure, step = 0, "walls"
    try:
        report = None if walls is None else raise_walls(walls)
        step = "chdir"
        os.chdir(cwd)
        tell(talk, "here", report)
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


if __name__ == "__main__":
    main()
