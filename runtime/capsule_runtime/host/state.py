"""Where things lie on disk."""

from __future__ import annotations

import os
from pathlib import Path

from capsule_runtime.core.work import WorkdirMode
from capsule_runtime.errors import HostError, StoreError
from capsule_runtime.host.capsule import Places
from capsule_runtime.host.workroom import work_folder

STATE_VARIABLE = "CAPSULE_STATE"
STATE_OF_ROOT = "/var/lib/capsule/state"
"""Of root without CAP_SYS_ADMIN, whose home only itself may enter."""


def default_state() -> Path:
    """Return the state directory: CAPSULE_STATE, or the platform's.

    Root that may not mount has it where the user of a run can be let through.
    """
    if given := os.environ.get(STATE_VARIABLE):
        return _absolute(given)
    from platformdirs import user_state_path  # not needed where the variable is set

    usual = user_state_path("capsule")
    if os.geteuid() == 0:
        from capsule_runtime.host.rights import is_open_to_others, may_mount

        if not (may_mount() or is_open_to_others(usual)):
            return Path(STATE_OF_ROOT)
    return usual


def _absolute(given: str) -> Path:
    try:
        given.encode()  # what is written about it later is UTF-8
        return Path(given).absolute()
    except (OSError, UnicodeEncodeError) as exc:
        raise StoreError(
            "E-STO-001",
            f"{STATE_VARIABLE} names no usable folder: {given!r}: {exc}",
            "Give an absolute path in UTF-8.",
        ) from exc


def doorbell(state: Path, supervisor: str) -> Path:
    """Return where others ring for *supervisor*."""
    return state / "supervisors" / f"{supervisor}.sock"


def warden_lock(state: Path, supervisor: str) -> Path:
    """Return the lock that is free once the warden of *supervisor* has buried every tree."""
    return state / "supervisors" / f"{supervisor}.warden"


def warden_door(state: Path, supervisor: str) -> Path:
    """Return where the warden of *supervisor* listens when its supervisor is stuck."""
    return state / "supervisors" / f"{supervisor}.warden.sock"


def warden_key(state: Path, supervisor: str) -> Path:
    """Return where those who may call at that door find what they must know."""
    return state / "supervisors" / f"{supervisor}.warden.sock.key"


def run_folder(state: Path, run: str) -> Path:
    """Return the folder of *run*."""
    return state / "runs" / run


def places_of(
    state: Path, run: str, context_uuid: str, original: Path, mode: WorkdirMode
) -> Places:
    """Return the folders of *run*, which has the work directory *original* in *mode*."""
    own, context = run_folder(state, run), state / "contexts" / context_uuid
    return Places(
        own,
        own / "out",
        context / "home",
        context / "tmp",
        work_folder(own) if mode == "copy" else original,
        original,
        mode,
    )


def private_folders(places: Places) -> tuple[Path, ...]:
    """Return the folders that a harness writes, beside its work directory and what was granted."""
    return places.out, places.home, places.tmp


def open_ways(places: Places) -> None:
    """Let other users through to the folders of a run, which are its user's alone.

    Raises:
        HostError: the disk refuses.
    """
    own, context = places.run, places.home.parent
    try:
        for folder in (own.parent.parent, own.parent, own, context.parent, context):
            folder.chmod(0o711)
    except OSError as exc:
        raise HostError("E-HOST-004", f"cannot open the folders of the run: {exc}") from exc


def make_places(places: Places) -> None:
    """Create the folders, for the owner's eyes only.

    Raises:
        HostError: the disk refuses.
    """
    try:
        for folder in private_folders(places):
            for parent in (folder.parent.parent, folder.parent, folder):
                parent.mkdir(mode=0o700, exist_ok=True)
    except OSError as exc:
        raise HostError("E-HOST-004", f"cannot create the folders of the run: {exc}") from exc
