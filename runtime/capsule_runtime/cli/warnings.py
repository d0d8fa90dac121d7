"""What a run changed in its work directory, in lines for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from capsule_runtime.core.log import Record
from capsule_runtime.core.work import Warned, WorkChanges

_SHOWN = 10


def warning_lines(warned: Sequence[Warned], count: int) -> Iterator[str]:
    """Yield a warning for each change that may make something run."""
    for one in warned[:_SHOWN]:
        yield f"warning: {one.path} was {one.change}: {one.runs}, takes orders from it"
    if (more := count - min(len(warned), _SHOWN)) > 0:
        yield f"warning: and {more} more of the kind: capsule show lists them"


def closing_lines(record: Record) -> Iterator[str]:
    """Yield what is said at the end of a run about its work directory; nothing, if it did nothing."""
    changes = record.changes
    if changes is None or record.created is None:
        return
    yield from warning_lines(changes.warned, changes.warned_count)
    if changes.tally is not None and (changes.tally.total or changes.internal):
        yield f"copy: {told_changes(changes)}; capsule apply {record.created.run}"
    if changes.left_out:
        first = changes.left_out[0]
        more = f" and {changes.left_out_count - 1} more" if changes.left_out_count > 1 else ""
        yield f"note: not collected: {first.path}{more}: {first.why}"


def told_changes(changes: WorkChanges) -> str:
    """Return how much was changed, in words."""
    if changes.tally is None:
        return "in place"
    inside = f", {changes.internal} inside .git" if changes.internal else ""
    return f"{changes.tally}{inside}"


def patch_of(record: Record, out_folder: Path) -> str | None:
    """Return where the patch of a run on a copy lies; None if there is none."""
    is_copy = record.changes is not None and record.changes.tally is not None
    patch = out_folder.parent / "changes.patch"
    return str(patch) if is_copy and patch.exists() else None
