"""Try once whether folders can be shown to another user as its own.

Run as `python -I -S shift_trial.py USER FOLDER`: it says `ok`, or what is in the way. Loaded by path:
the standard library only.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from capsule_runtime.host.sealing import try_shift
else:
    sys.path.append(os.path.dirname(os.path.abspath(__file__)))
    from sealing import try_shift


def main() -> None:
    user, folder = sys.argv[1:]
    try:
        try_shift(os.fsencode(folder), int(user))
    except OSError as refusal:
        os.write(1, f"{refusal.strerror}\n".encode(errors="surrogateescape"))
    else:
        os.write(1, b"ok\n")


if __name__ == "__main__":
    main()
