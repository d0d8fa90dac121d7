"""What becomes of a work directory: in which mode a run has it, and what it changed there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from capsule_runtime.errors import UsageError

WorkdirMode = Literal["ro", "copy", "rw"]
"""Read in place, changed in a copy, changed in place: each may do more than the one before."""

POWER: tuple[WorkdirMode, ...] = ("ro", "copy", "rw")
SHOWN = 50
"""How many paths of a kind an entry of the log names; of the others it has the number."""
_PATH_SHOWN = 1024


class LeftOut(Struct, frozen=True):
    """Something that was not copied or not collected."""

    path: str
    why: str


class CopyMade(Struct, frozen=True, omit_defaults=True):
    """What was copied before the launch."""

    files: int
    bytes: int
    cloned: int = 0
    """How many files share their blocks with the original, until one of the two is changed."""
    left_out: tuple[LeftOut, ...] = ()
    left_out_count: int = 0


class Tally(Struct, frozen=True):
    """How many files and links a run changed."""

    added: int = 0
    changed: int = 0
    removed: int = 0

    @property
    def total(self) -> int:
        return self.added + self.changed + self.removed

    def __str__(self) -> str:
        parts = (("added", self.added), ("changed", self.changed), ("removed", self.removed))
        return ", ".join(f"{count} {name}" for name, count in parts if count) or "nothing changed"


class Warned(Struct, frozen=True):
    """A change by which something may run later, outside, without anybody asking for it."""

    path: str
    change: Literal["added", "changed", "removed"]
    runs: str
    """Who takes orders from it, and when."""


class WorkChanges(Struct, frozen=True, omit_defaults=True):
    """What a run changed in its work directory."""

    tally: Tally | None = None
    """In a copy, outside of `.git`; in place nobody counts."""
    internal: int = 0
    """How many files of a repository's own, inside `.git`, were changed in a copy."""
    left_out: tuple[LeftOut, ...] = ()
    """What was changed and not collected."""
    left_out_count: int = 0
    warned: tuple[Warned, ...] = ()
    warned_count: int = 0
    is_cut: bool = False
    """Whether there was more than is looked at or collected; a copy is kept then."""


def mode_of(
    asked: WorkdirMode | None, wanted: WorkdirMode | None, *, holds_capsule: bool
) -> WorkdirMode:
    """Return the mode of a run, of what its manifest *asked* for and its caller *wanted*.

    A manifest that says nothing asks for `rw`; it gets a copy where the work directory holds the
    capsule itself, which a run in place could rewrite, unless the caller wants it so.

    Raises:
        UsageError: E-USE-053, the caller wants more than the manifest asks for.
    """
    if wanted is None:
        return asked or ("copy" if holds_capsule else "rw")
    if POWER.index(wanted) > POWER.index(asked or "rw"):
        raise UsageError(
            "E-USE-053",
            f"the capsule asks for its work directory as {asked!r}, so it does not get {wanted!r}",
            f"Choose {' or '.join(POWER[: POWER.index(asked or 'rw') + 1])}.",
        )
    return wanted


def show_path(path: bytes) -> str:
    """Return *path* as text for a log; bytes that are no UTF-8 become question marks."""
    text = path.decode("utf-8", "replace")
    return text if len(text) <= _PATH_SHOWN else f"{text[:_PATH_SHOWN]}…"


def shortened(found: Sequence[tuple[str, str]]) -> tuple[tuple[LeftOut, ...], int]:
    """Return the first of *found*, path and reason each, and how many there are."""
    return tuple(LeftOut(path, why) for path, why in sorted(found)[:SHOWN]), len(found)
