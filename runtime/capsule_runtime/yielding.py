"""What a run that root starts gets of the caller's folders where they cannot be shown as its own.

Its user is one that nobody else has. By mounts it is shown what it may write as if that were its own;
where the kernel or a file system cannot do that it has folders of its own, and so a copy of the work
directory. Nothing of the caller's changes hands.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

from capsule_runtime.containing import Shell
from capsule_runtime.errors import ContainmentError


class WorkWish(Struct, frozen=True):
    """What is wished of a work directory."""

    workdir: Path
    mode: str
    """In which the run has it, if it can."""
    named: str | None
    """Which one the caller named."""


def why_in_copy(shell: Shell, wish: WorkWish, state: Path) -> str:
    """Say why a run of *shell* works on a copy though nobody asked for one; "" if it does not.

    Raises:
        ContainmentError: E-CAP-008, its caller wants it in place, and nothing else.
    """
    if wish.mode != "rw" or not (why := _why_not(shell, wish.workdir, state)):
        return ""
    if wish.named == "rw":
        raise ContainmentError(
            "E-CAP-008",
            f"no run of root's can work in {wish.workdir} in place: {why}",
            "Leave --workdir-mode rw out: the run works on a copy, and `capsule apply` brings what"
            " it changed. Or start it as a plain user.",
        )
    return why


def check_writable(shell: Shell, granted: Iterable[str], state: Path) -> None:
    """Refuse what is *granted* to be written, and cannot be shown to the run as its own.

    Raises:
        ContainmentError: E-CAP-008, there is such a folder.
    """
    for path in granted:
        if why := _why_not(shell, Path(path), state):
            raise ContainmentError(
                "E-CAP-008",
                f"{path} was granted to be written, and no run of root's can write there: {why}",
                "Leave the grant out, or start the run as a plain user who may write there.",
            )


def _why_not(shell: Shell, folder: Path, state: Path) -> str:
    if not shell.needs_user:
        return ""
    from capsule_runtime.host.shifting import why_not_shifted  # only root has a need

    why = why_not_shifted(str(folder), state)
    if not why and not shell.shifts:
        folder, why = state, why_not_shifted(str(state), state)
    return f"root cannot show {folder} to the user that a run has: {why}" if why else ""
