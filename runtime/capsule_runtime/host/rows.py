"""What the store keeps beside the log, as values."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from msgspec import Struct

from capsule_runtime.core.chain import Row
from capsule_runtime.core.index import IndexRow
from capsule_runtime.core.setting import Setting, TierClass


@dataclass(frozen=True, slots=True)
class ContextRow:
    """A conversation. An absent *session* or *memory* leaves the stored one as it is.

    What is stored of where its runs take place stays: *tier*, *home* and *workdir*.
    """

    name: str
    uuid: str
    driver: str
    created_at: str
    session: str | None = None
    memory: bytes | None = None
    tier: TierClass | None = None
    home: str | None = None
    workdir: str | None = None

    @property
    def setting(self) -> Setting:
        """Return what it was made with."""
        return Setting(self.tier, self.home, self.workdir)

    def at(self, setting: Setting) -> ContextRow:
        """Return the same for a run that takes place at *setting*."""
        return replace(self, tier=setting.tier, home=setting.home, workdir=setting.workdir)


class Folded(Struct, frozen=True):
    """What the log of one run says about the index."""

    index: IndexRow
    context: ContextRow | None = None


Fold = Callable[[Iterable[Row]], Folded]
"""From all rows of one run, in order, to what the index should say."""


class ContextBusy(Struct, frozen=True):
    """The run was not created: *run* lives or is parked in the same context."""

    run: str


class ContextDiffers(Struct, frozen=True):
    """The run was not created: the name belongs to *found*, which is another or elsewhere."""

    found: ContextRow


class Request(Struct, frozen=True):
    """A verb that another process asks of the owner of *run*."""

    id: int
    run: str
    verb: str
    body: bytes
    asked_at: str


class Problem(Struct, frozen=True):
    """Something `check` found. *run* and *seq* are absent when it concerns the whole database."""

    run: str | None
    seq: int | None
    message: str
