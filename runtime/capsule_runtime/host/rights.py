"""What this process may do, where that decides how runs are made."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from functools import cache
from pathlib import Path

_SYS_ADMIN = 1 << 21
_NEEDED = {"CHOWN": 0, "DAC_OVERRIDE": 1, "FOWNER": 3, "KILL": 5, "SETGID": 6, "SETUID": 7}
"""What root has in a container by default, too; by the number of each."""


@cache
def may_mount() -> bool:
    """Whether this process has the right to mount: root in a container does not by default."""
    return bool(_held() & _SYS_ADMIN)


def lacking_rights() -> tuple[str, ...]:
    """Return which rights root has not that it takes to have a run be another user, and to end it."""
    held = _held()
    return tuple(f"CAP_{name}" for name, number in _NEEDED.items() if not held >> number & 1)


@cache
def _held() -> int:
    words = Path("/proc/self/status").read_text(encoding="utf-8", errors="replace").split()
    return int(words[words.index("CapEff:") + 1], 16)


def is_open_to_others(folder: Path) -> bool:
    """Whether any user may go through all that lies above *folder*, as far as it is there."""
    for parent in Path(os.path.realpath(folder)).parents:
        with suppress(FileNotFoundError):
            if not parent.stat().st_mode & stat.S_IXOTH:
                return False
    return True
