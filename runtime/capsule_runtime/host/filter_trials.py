"""Try filters and the broker from inside: be a harness behind them, and say how it went.

Run as `python -I -S filter_trials.py SOCKET UID NOTIFY FILTER FILE PORT`: a socket to whoever serves
us, whom to be (-1: stay who we are), two programs in base64, a file of that user's that only the
broker can change, and a port where only the broker leads. Loaded by path: the standard library only.
It writes one JSON object: by the name of each trial "", or why it failed.
"""

from __future__ import annotations

import array
import base64
import ctypes
import json
import os
import socket
import stat
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from capsule_runtime.host.filters import count_installed, install, install_notifying
    from capsule_runtime.host.walls import drop_privileges
else:
    sys.path.append(os.path.dirname(os.path.abspath(__file__)))
    from filters import count_installed, install, install_notifying
    from walls import drop_privileges

_SET_DUMPABLE = 4
MODE = 0o640
GREETING = b"here"


def main() -> None:
    number, uid, notify, program, file, port = sys.argv[1:]
    talk = socket.socket(fileno=int(number))
    if int(uid) >= 0:
        become(int(uid))
    drop_privileges()
    told = {"notices": why_not_told(talk, base64.b64decode(notify))}
    told["mediation"] = told["notices"] or why_not_mediated(file, int(port))
    told["filters"] = why_not_filtered(base64.b64decode(program))
    sys.stdout.write(json.dumps(told))


def become(uid: int) -> None:
    """Be the user *uid*, with a group of that number and no others."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    # As it is for whoever runs a program next. What changed its user keeps its memory to itself.
    ctypes.CDLL(None).prctl(_SET_DUMPABLE, 1, 0, 0, 0)


def why_not_told(talk: socket.socket, program: bytes) -> str:
    """Hand over the descriptor at which our calls are told, or return why there is none."""
    try:
        listener = install_notifying(program)
    except OSError as exc:
        return str(exc.strerror or exc)
    talk.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [listener]))])
    os.close(listener)
    talk.recv(1)
    return ""


def why_not_mediated(file: str, port: int) -> str:
    """Do what only the broker can do for us; return what went wrong."""
    try:
        with socket.socket() as ours:
            ours.settimeout(5)
            ours.connect(("127.0.0.1", port))
            if ours.recv(len(GREETING)) != GREETING:
                return "a connection did not lead to where the broker leads"
        os.chmod(file, MODE)
        if stat.S_IMODE(os.stat(file).st_mode) != MODE:
            return "a file was not changed"
    except OSError as exc:
        return f"what the broker does for a harness failed: {exc.strerror or exc}"
    return ""


def why_not_filtered(program: bytes) -> str:
    """Go behind a filter and do what it refuses; return what went wrong."""
    before = count_installed()
    try:
        install(program)
    except OSError as exc:
        return str(exc.strerror or exc)
    if count_installed() != before + 1:
        return "a filter was put up, and the kernel counts none"
    try:
        socket.socket(socket.AF_NETLINK, socket.SOCK_RAW).close()
    except PermissionError:
        return ""
    return "a filter was put up, and refuses nothing"


if __name__ == "__main__":
    main()
