"""The terminals of a scoped run: those that it made itself, and no others of its user's.

A program makes one by opening its master; the other end it opens by that (`TIOCGPTPEER`) or by a
name. Where a run is the caller's user the walls keep it from all names: among them is the terminal
that the caller types at. So the other end is opened by us, and only for who has the master.
"""

from __future__ import annotations

import errno
import os

from capsule_runtime.core.notices import Refused
from capsule_runtime.core.wanted import OpenTerminal
from capsule_runtime.host.caller import Caller


def open_terminal(wanted: OpenTerminal, caller: Caller) -> int:
    """Return a descriptor of the other end of a terminal of the *caller*'s; it becomes nobody's.

    Raises:
        Refused: the caller has no such master.
        OSError: it cannot be opened.
    """
    number = caller.terminal_of(wanted.descriptor)
    opened = os.open(f"/dev/pts/{number}", wanted.flags | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        # The number may have become that of somebody else's terminal just before. As long as we
        # have this one open it names no other: so who has its master now, has the master of this.
        if caller.terminal_of(wanted.descriptor) != number:
            raise Refused(errno.EIO)
    except Refused:
        os.close(opened)
        raise
    return opened
