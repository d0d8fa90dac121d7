"""What this process may do, where that decides how runs are made."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from functools import cache
from pathlib import Path

_SYS_ADMIN = 1 << 21


@cache
def may_mount() -> bool:
    """Whether this process has the right to mount: root in a container does not by default."""
    words = Path("/proc/self/status").read_text(encoding="utf-8", errors="replace").split()
    return bool(int(words[words.index("CapEff:") + 1], 16) & _SYS_ADMIN)


def is_open_to_others(folder: Path) -> bool:
    """Whether any user may go through all that lies above *folder*, as far as it is there."""
    for parent in Path(os.path.realpath(folder)).parents:
        with suppress(FileNotFoundError):
            if not parent.stat().st_mode & stat.S_IXOTH:
                return False
    return True
