"""Which of a run's changes are offered to be applied, and how they are told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec import Struct

from capsule_runtime.core.applying import is_sound, leads_out
from capsule_runtime.core.git_patch import LINK_MODE
from capsule_runtime.core.log import Record
from capsule_runtime.core.work import LeftOut, Tally, Warned, show_path
from capsule_runtime.errors import HostError
from capsule_runtime.host.apply_changes import Numbered
from capsule_runtime.host.changes import Change
from capsule_runtime.host.kept_changes import Changes, Kept

_OF_GIT = "it is a file of the repository's own; --with git applies it too"
_OUTWARD = "it is a link that may lead out of the work directory; --with links applies it too"


@dataclass(frozen=True, slots=True)
class Wants:
    """What is applied beside ordinary files."""

    git: bool = False
    """Files inside `.git`: commits and branches, but also hooks and configuration."""
    links: bool = False
    """Links that may lead out of the work directory."""


class Offered(Struct, frozen=True):
    """One change that is offered, for people and programs to read."""

    path: str
    change: str
    """added, changed, removed or mode."""
    size: int | None
    """Of the new contents, in bytes."""


class Offer(Struct, frozen=True):
    """What `capsule apply` would do, or did, with one run."""

    run: str
    workdir: str
    patch: str
    """The patch that was kept, without what lies inside `.git`."""
    tally: Tally
    changes: tuple[Offered, ...]
    left_out: tuple[LeftOut, ...]
    """What is not applied, and why."""
    warned: tuple[Warned, ...]
    is_cut: bool
    """Whether the run changed more than could be looked at."""
    applied_at: str | None = None


def select(changes: Changes, wants: Wants) -> tuple[Numbered, list[LeftOut]]:
    """Return what is to be applied, and what is not.

    Raises:
        HostError: E-HOST-041, what was kept names something outside.
    """
    selected: list[tuple[int, Change]] = []
    left_out = [LeftOut(show_path(path), why) for path, why in changes.left_out]
    for number, change in enumerate(changes.changes):
        if not is_sound(change.path):
            raise HostError(
                "E-HOST-041", f"a change leads out of the work directory: {change.path!r}"
            )
        if change.internal and not wants.git:
            left_out.append(LeftOut(show_path(change.path), _OF_GIT))
        elif _is_outward(change) and not wants.links:
            left_out.append(LeftOut(show_path(change.path), _OUTWARD))
        else:
            selected.append((number, change))
    return selected, left_out


def _is_outward(change: Change) -> bool:
    is_link = change.new is not None and change.new.mode == LINK_MODE
    return is_link and leads_out(change.path, change.target)


def offer_of(
    record: Record,
    kept: Kept,
    changes: Changes,
    selected: Numbered,
    left_out: Sequence[LeftOut],
) -> Offer:
    """Return what is offered of the *selected* changes, for people and programs to read."""
    assert record.created is not None  # it was checked
    return Offer(
        run=record.created.run,
        workdir=record.created.workdir,
        patch=str(kept.patch),
        tally=_tally(selected),
        changes=tuple(_offered(change) for _, change in selected),
        left_out=tuple(left_out),
        warned=_warned(record, selected),
        is_cut=changes.is_cut,
    )


def _warned(record: Record, selected: Numbered) -> tuple[Warned, ...]:
    """Return the warnings of what is to be applied."""
    paths = {show_path(change.path) for _, change in selected}
    warned = record.changes.warned if record.changes else ()
    return tuple(one for one in warned if one.path in paths)


def _offered(change: Change) -> Offered:
    old, new, path = change.old, change.new, show_path(change.path)
    if new is None:
        return Offered(path, "removed", None)
    if old is None:
        return Offered(path, "added", new.size)
    return Offered(path, "mode" if old.id == new.id else "changed", new.size)


def _tally(selected: Numbered) -> Tally:
    words = [_offered(change).change for _, change in selected]
    removed, added = words.count("removed"), words.count("added")
    return Tally(added, len(words) - added - removed, removed)
