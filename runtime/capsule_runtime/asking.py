"""What a capsule asks for on this machine, and what no capsule is ever given."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from capsule_runtime.core.capability_forms import host_in_one_form, is_own_path, trouble_with_text
from capsule_runtime.core.grants import (
    Item,
    Tier,
    grants_of,
    is_beneath,
    items_of,
    lowers_floor,
    overlap,
)
from capsule_runtime.errors import ManifestError
from capsule_runtime.host.capsule import Capsule
from capsule_runtime.host.own_paths import real_path, why_never
from capsule_runtime.manifest import MANIFEST_NAME


def asked_by(capsule: Capsule, floors: Iterable[Tier], state: Path) -> tuple[Item, ...]:
    """Return what *capsule* asks for, with paths as they lead here.

    *floors* are the tiers that the caller named; *state* is the state directory.

    Raises:
        ManifestError: E-MAN-010, no capsule ever gets that.
    """
    asked = capsule.manifest.capabilities
    items = [
        _here(item, capsule, state)
        for item in items_of(asked)
        if not (item.kind == "tier" or (item.kind == "read" and is_own_path(item.value)))
    ]
    found = tuple(dict.fromkeys(items))
    if both := overlap(grants_of(found)):
        raise _never(capsule, f"read = {both[0]!r} and write = {both[1]!r}: one holds the other")
    if asked.containment is not None and lowers_floor(asked.containment, floors):
        return (*found, Item("tier", asked.containment))
    return found


def _here(item: Item, capsule: Capsule, state: Path) -> Item:
    """Return *item* in the one form that it has on this machine."""
    if item.kind == "host":
        return Item("host", host_in_one_form(item.value))
    if item.kind not in ("read", "write"):
        return item
    path = real_path(item.value)
    why = why_never(path, state) or trouble_with_text(path)
    if why is None and item.kind == "write" and _touch(path, str(capsule.folder)):
        why = "the capsule's own folder is there, and a capsule never writes to it"
    if why is not None:
        raise _never(capsule, f"{item.kind} = {item.value!r}: {why}")
    return Item(item.kind, path)


def _never(capsule: Capsule, what: str) -> ManifestError:
    return ManifestError(
        "E-MAN-010",
        f"{capsule.folder / MANIFEST_NAME}: capabilities: {what}",
        "No grant gives a capsule that. Name a folder that holds only what it needs.",
    )


def _touch(path: str, other: str) -> bool:
    return is_beneath(path, other) or is_beneath(other, path)
