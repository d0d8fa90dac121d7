"""Which folder a run works on, and in which mode it has it."""

from __future__ import annotations

import os
from pathlib import Path

from capsule_runtime.core.grants import Tier, is_beneath
from capsule_runtime.core.work import WorkdirMode, mode_of
from capsule_runtime.errors import UsageError
from capsule_runtime.host.own_paths import why_no_workdir

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


def refuse_exposing(workdir: Path, mode: WorkdirMode, tier: Tier, state: Path) -> None:
    """Refuse a *workdir* that holds logins: in walls that let the harness in, they hold nothing.

    Raises:
        UsageError: E-USE-015, it does.
    """
    if tier == "advisory":
        return  # every file of the caller's is open anyway, and the report says so
    real = os.path.realpath(workdir)
    why = why_no_workdir(real, state, is_copied=mode == "copy")
    if why is None:
        return
    copy_will_do = mode != "copy" and why_no_workdir(real, state, is_copied=True) is None
    copy = ", or pass --workdir-mode copy, which leaves it out" if copy_will_do else ""
    raise UsageError(
        "E-USE-015",
        f"the work directory {workdir} cannot be given to a {tier} run: {why}",
        f"Work in a project folder of its own{copy}.",
    )


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
