"""Trust a capsule: record what it is now and what it asks for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from capsule_runtime.asking import asked_by
from capsule_runtime.core.grants import Item
from capsule_runtime.host.capsule import Capsule, load_capsule
from capsule_runtime.host.capsule_digest import Digest, digest_of
from capsule_runtime.host.clock import SystemClock
from capsule_runtime.host.state import default_state
from capsule_runtime.host.trust_file import (
    Trust,
    forget_trust,
    load_trusts,
    record_trust,
)


@dataclass(frozen=True, slots=True)
class Look:
    """A capsule, looked at to be trusted."""

    capsule: Capsule
    asks: tuple[Item, ...]
    digest: Digest


def look_at(folder: Path, state: Path | None = None) -> Look:
    """Look at the capsule in *folder*: all that it asks for, and what it is.

    Raises:
        CapsuleError: there is none, it is wrong, or it cannot be counted.
    """
    capsule = load_capsule(folder)
    asks = asked_by(capsule, (), state or default_state())
    return Look(capsule, asks, digest_of(capsule.folder))


def trust(look: Look, state: Path | None = None) -> None:
    """Record that the capsule gets what it asks for, until anything in its folder changes.

    Raises:
        CapsuleError: it cannot be recorded.
    """
    record_trust(
        state or default_state(),
        Trust(
            folder=str(look.capsule.folder),
            digest=look.digest.text,
            asks=look.asks,
            at=SystemClock().moment().at,
        ),
    )


def trusts(state: Path | None = None) -> list[Trust]:
    """Return all that was trusted and not forgotten, by folder."""
    return load_trusts(state or default_state())


def forget(folder: Path, state: Path | None = None) -> bool:
    """Trust the capsule in *folder* no longer; tell whether it was trusted."""
    return forget_trust(state or default_state(), folder.resolve())
