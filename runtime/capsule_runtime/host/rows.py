"""What the store keeps beside the log, as values."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from capsule_runtime.core.chain import Row
from capsule_runtime.core.index import IndexRow


@dataclass(frozen=True, slots=True)
class ContextRow:
    """A conversation. An absent *session* or *memory* leaves the stored one as it is."""

    name: str
    uuid: str
    driver: str
    created_at: str
    session: str | None = None
    memory: bytes | None = None


@dataclass(frozen=True, slots=True)
class Folded:
    """What the log of one run says about the index."""

    index: IndexRow
    context: ContextRow | None = None


Fold = Callable[[Iterable[Row]], Folded]
"""From all rows of one run, in order, to what the index should say."""


@dataclass(frozen=True, slots=True)
class ContextBusy:
    """The run was not created: *run* lives or is parked in the same context."""

    run: str


@dataclass(frozen=True, slots=True)
class ContextDiffers:
    """The run was not created: the name belongs to *found*, with another uuid or driver."""

    found: ContextRow


@dataclass(frozen=True, slots=True)
class Request:
    """A verb that another process asks of the owner of *run*."""

    id: int
    run: str
    verb: str
    body: bytes
    asked_at: str


@dataclass(frozen=True, slots=True)
class Problem:
    """Something `check` found. *run* and *seq* are absent when it concerns the whole database."""

    run: str | None
    seq: int | None
    message: str
