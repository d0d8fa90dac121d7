"""Find and read config.toml, which must be its owner's alone."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from capsule_runtime.errors import UsageError

if TYPE_CHECKING:
    from capsule_runtime.config import Config

CONFIG_VARIABLE = "CAPSULE_CONFIG"
CONFIG_NAME = "config.toml"
_MOST_BYTES = 1024 * 1024


def config_path() -> Path | None:
    """Return where config.toml is: CAPSULE_CONFIG, or in the platform's config directory.

    None for a caller without a home, who has no such directory.

    Raises:
        UsageError: E-CFG-005, CAPSULE_CONFIG is no name in UTF-8.
    """
    if given := os.environ.get(CONFIG_VARIABLE):
        if not given.isprintable():
            raise UsageError("E-CFG-005", f"{CONFIG_VARIABLE} names no usable file: {given!r}")
        return Path(os.path.abspath(given))
    # What platformdirs would say; importing it takes longer than all else that is done here.
    bases = (os.environ.get("XDG_CONFIG_HOME", ""), os.path.expanduser("~/.config"))
    base = next(filter(os.path.isabs, bases), None)
    return Path(base, "capsule", CONFIG_NAME) if base else None


def load_config() -> Config | None:
    """Read config.toml; None when there is none, and nobody named one.

    Raises:
        UsageError: it cannot be read, others may read or write it, or it is wrong.
    """
    if (path := config_path()) is None:
        return None
    try:
        text = _read(path)
    except (FileNotFoundError, NotADirectoryError) as exc:
        if not os.environ.get(CONFIG_VARIABLE):
            return None
        raise _unreadable(path, "there is no such file") from exc
    except (OSError, ValueError) as exc:
        raise _unreadable(path, str(exc)) from exc
    from capsule_runtime.config import parse_config  # most callers have no config.toml

    return parse_config(text, str(path))


def _read(path: Path) -> str:
    """Return the text of *path*.

    Raises:
        OSError: it cannot be read.
        ValueError: it is not a text of at most 1 MiB.
        UsageError: it is not its owner's alone.
    """
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise ValueError("it is not a regular file")
        _check_is_ours(path, found)
        text = file.read(_MOST_BYTES + 1)
    if len(text) > _MOST_BYTES:
        raise ValueError("it is larger than 1 MiB")
    return text.decode("utf-8-sig")


def _check_is_ours(path: Path, found: os.stat_result) -> None:
    if found.st_uid != os.geteuid():
        raise UsageError(
            "E-CFG-006",
            f"{path} belongs to user {found.st_uid}, not to you",
            f"Write one of your own, and name it with {CONFIG_VARIABLE}.",
        )
    mode = stat.S_IMODE(found.st_mode)
    if mode & 0o077:
        raise UsageError(
            "E-CFG-006",
            f"{path} has mode {mode:04o}: others may read or change it",
            f"chmod 600 {path}",
        )


def _unreadable(path: Path, why: str) -> UsageError:
    named = (
        f"{CONFIG_VARIABLE} names it: correct it, or unset it."
        if os.environ.get(CONFIG_VARIABLE)
        else ""
    )
    return UsageError("E-CFG-005", f"{path} cannot be read: {why}", named)
