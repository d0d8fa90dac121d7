"""What the log knows of a run's work directory, and of what was changed there."""

from __future__ import annotations

from msgspec import Struct

from capsule_runtime.core.work import CopyMade, Tally, WorkChanges


class Copied(Struct, frozen=True, tag_field="fact", tag="copied"):
    """The work directory was copied; the harness works in the copy."""

    seq: int
    at: str
    run: str
    copy: CopyMade


class Collected(Struct, frozen=True, tag_field="fact", tag="collected"):
    """What the run changed in its work directory was looked at; of a copy, it was kept."""

    seq: int
    at: str
    run: str
    changes: WorkChanges


class Applied(Struct, frozen=True, tag_field="fact", tag="applied", omit_defaults=True):
    """What the run changed in its copy was applied to the original. Comes after the end."""

    seq: int
    at: str
    run: str
    tally: Tally
    left_out: int = 0
    """How many of the changes were not applied, because nobody asked for them."""
