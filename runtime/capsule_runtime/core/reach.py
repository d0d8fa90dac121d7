"""What a run's own user cannot reach, where root can show it nothing as its own. Pure."""

from __future__ import annotations

from capsule_runtime.core.grants import Grants, is_beneath
from capsule_runtime.core.sandbox_plan import Ground
from capsule_runtime.errors import ContainmentError


def check_reach(ground: Ground, grants: Grants) -> None:
    """Refuse a run that needs what lies in a folder that only its owner may enter.

    Raises:
        ContainmentError: E-CAP-007, there is such a folder.
    """
    for what, path, hint in _needed(ground, grants):
        if closed := barring(ground, path):
            raise ContainmentError(
                "E-CAP-007",
                f"{what} {path} lies in {closed}, which a run's own user may not enter, and here"
                " root cannot show it to that user",
                f"{hint} Where root has CAP_SYS_ADMIN it can lie there.",
            )


def barring(ground: Ground, path: str) -> str:
    """Return the folder that keeps a run's user from *path*; "" if none does."""
    for folder in ground.barred:
        # What is closed of our own state is opened for the run.
        if is_beneath(path, folder) and not is_beneath(folder, ground.state):
            return folder
    return ""


def _needed(ground: Ground, grants: Grants) -> tuple[tuple[str, str, str], ...]:
    folder = "Have it where others can enter, such as /srv or /opt."
    named = [
        ("the run's own folder", path, "Set CAPSULE_STATE to a folder outside of it.")
        for path in ground.writable
    ]
    if ground.workdir_mode == "ro":
        named.append(
            ("the work directory", ground.workdir, "Let it have a copy: --workdir-mode copy.")
        )
    named += [("what was granted to be read", path, folder) for path in grants.read]
    # What lies in the capsule is copied with it.
    programs = (path for path in ground.program.files if not is_beneath(path, ground.capsule))
    named += [
        ("the program", path, f"{folder} Or put another first, with --env PATH=…")
        for path in programs
    ]
    return tuple(named)
