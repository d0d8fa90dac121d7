"""Which folder a run works on, and in which mode it has it."""

from __future__ import annotations

import os
from pathlib import Path

from capsule_runtime.core.grants import is_beneath
from capsule_runtime.core.work import WorkdirMode, mode_of
from capsule_runtime.errors import UsageError

_WORKDIR_HINT = "Name one with --workdir."


def find_mode(
    asked: WorkdirMode | None, wanted: WorkdirMode | None, workdir: Path, capsule: Path | None
) -> WorkdirMode:
    """Return in which mode a run of what lies in the folder *capsule* has *workdir*.

    Raises:
        UsageError: E-USE-053, its caller wants more than its manifest asks for.
    """
    holds = capsule is not None and is_beneath(str(capsule), os.path.realpath(workdir))
    return mode_of(asked, wanted, holds_capsule=holds)


def find_workdir(given: Path) -> Path:
    """Return the work directory that is meant.

    Raises:
        UsageError: E-USE-011, it is no folder.
    """
    try:
        workdir = Path(os.path.abspath(given))
        is_folder = workdir.is_dir()
    except (OSError, ValueError) as exc:  # the current folder may be gone, a name too long
        raise UsageError(
            "E-USE-011", f"the work directory {given} cannot be used: {exc}", _WORKDIR_HINT
        ) from exc
    if not is_folder:
        raise UsageError(
            "E-USE-011", f"the work directory {workdir} is not a folder", _WORKDIR_HINT
        )
    return workdir
