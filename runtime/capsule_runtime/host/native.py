"""Find the real program behind a launcher, which may hide it from signals and outlive it."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

_MARK = "package.json"
"""What lies in the top folder of a package that npm installed."""
_ELF = b"\x7fELF"


def native_program(launcher: str, patterns: Sequence[str]) -> str:
    """Return the program that *launcher* would start, or *launcher* if there is none.

    *patterns* are relative to the package that the launcher belongs to; the first that fits wins.
    """
    package = _package_of(launcher)
    if package is None:
        return launcher
    for pattern in patterns:
        here = pattern.replace("{machine}", os.uname().machine)
        for found in sorted(glob.glob(os.path.join(glob.escape(package), here))):
            if os.path.isfile(found) and os.access(found, os.X_OK):
                return os.path.normpath(found)
    return launcher


def _package_of(launcher: str) -> str | None:
    """Return the package that *launcher* belongs to; None if it is no script of one."""
    with suppress(OSError):
        real = Path(launcher).resolve()
        with real.open("rb") as file:
            if file.read(len(_ELF)) == _ELF:
                return None
        for folder in real.parents:
            if (folder / _MARK).is_file():
                return str(folder)
    return None
