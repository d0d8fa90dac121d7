"""Try once whether a sealed root can be had: open, shift owners, and become bubblewrap.

Run as `python -I -S seal_trial.py FOLDER USER WORD…`: a folder of ours, the number of a user to whom
it is shown as its own (`-` for nobody), and the command that composes the root. Loaded by path: the
standard library only.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from capsule_runtime.host.sealing import prepare
else:
    sys.path.append(os.path.dirname(os.path.abspath(__file__)))
    from sealing import prepare

FOLDER = 10
"""The descriptor by which the command, which says so itself, finds the folder."""


def main() -> None:
    folder, user, *command = sys.argv[1:]
    path = os.fsencode(folder)
    shift = None if user == "-" else (int(user), (path,), ())
    try:
        prepare((((FOLDER, path),), (), shift))
    except OSError as refusal:
        sys.exit(str(refusal))
    os.execve(command[0], command, {})


if __name__ == "__main__":
    main()
