"""Try once whether a sealed root can be had: open, shift owners, have one composed, go in, be filtered.

Run as `python -I -S seal_trial.py FOLDER USER WORD…`: a folder of ours, the number of a user to whom
it is shown as its own (`-` for nobody), and the command that composes the root. It says `ok`, or what
is in the way. Loaded by path: the standard library only.
"""

from __future__ import annotations

import os
import struct
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal

    from capsule_runtime.host.entering import compose, enter, settle
    from capsule_runtime.host.filters import install
    from capsule_runtime.host.linux import become_reaper
    from capsule_runtime.host.sealing import prepare
    from capsule_runtime.host.sweep import children
    from capsule_runtime.host.walls import drop_privileges
else:
    import _signal as signal

    sys.path.append(os.path.dirname(os.path.abspath(__file__)))
    from entering import compose, enter, settle
    from filters import install
    from linux import become_reaper
    from sealing import prepare
    from sweep import children
    from walls import drop_privileges

FOLDER = 10
"""The descriptor by which the command, which says so itself, finds the folder."""
_FIRST_FREE = 3
_ALLOW_ALL = struct.pack("HBBI", 0x06, 0, 0, 0x7FFF0000)
"""A filter of calls that refuses none."""


def main() -> None:
    folder, user, *command = sys.argv[1:]
    become_reaper(b"capsule-trial")
    heard, says = os.pipe2(os.O_CLOEXEC)
    if os.fork() == 0:
        os.dup2(says, 1)
        os.closerange(_FIRST_FREE, os.sysconf("SC_OPEN_MAX"))
        try:
            go_in(os.fsencode(folder), user, [os.fsencode(word) for word in command])
        except OSError as refusal:
            os.write(1, f"{refusal.strerror}\n".encode())
        finally:
            os._exit(0)
    os.close(says)
    with open(heard, "rb") as words:
        said = words.read()
    # Not once: what bubblewrap had started may not end with it, and is ours only after its end.
    while left := children(os.getpid()):
        for child in left:
            os.kill(child, signal.SIGKILL)
        os.wait()
    os.write(1, said)


def go_in(folder: bytes, user: str, command: list[bytes]) -> None:
    shift = None if user == "-" else (int(user), (folder,), ())
    prepare((((FOLDER, folder),), (), shift))
    if (settled := enter(compose(command), _FIRST_FREE)) >= 0:
        settle(settled)
        drop_privileges(None if user == "-" else int(user))
        install(_ALLOW_ALL)
        os.write(1, b"ok\n" if os.getppid() == 0 else b"it has no processes of its own\n")


if __name__ == "__main__":
    main()
