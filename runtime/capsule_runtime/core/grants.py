"""What a capsule may touch beyond its own directory and the work directory.

A manifest asks and the caller grants, in the same shape. What was granted and not asked for counts
for nothing; what was asked for and not granted is missing, and then there is no run. Paths are
absolute and without links by the time they come here: a grant covers what lies beneath it, by
components. A host covers itself, and with one leading `*.` all names beneath it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

from msgspec import Struct

from capsule_runtime.core.destinations import covers_destination

Tier = Literal["sealed", "scoped", "advisory"]
TIERS: tuple[Tier, ...] = ("sealed", "scoped", "advisory")
"""How strongly a run is contained, the strongest first."""
USUAL_FLOOR: Tier = "scoped"
"""The weakest tier that will do where nobody says anything."""
Policy = Literal["allow", "deny", "fail"]
"""What a harness is told that asks for permission: yes, no, or no and the run is over."""
Wish = Literal["allow", "deny", "fail", "ask"]
"""What may be written of that: also that a person is to be asked."""


class Grants(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Paths, hosts and names, as a manifest asks for them or a caller grants them."""

    read: tuple[str, ...] = ()
    """Absolute paths that may be read and executed."""
    write: tuple[str, ...] = ()
    """Absolute paths that may be read and written."""
    hosts: tuple[str, ...] = ()
    """Network destinations: `host`, `host:port` or `*.host`; behind `http://` without TLS."""
    env: tuple[str, ...] = ()
    """Names of variables taken over from the caller's environment."""
    secrets: tuple[str, ...] = ()
    """Names of variables whose values are secrets: by definition inside, and listed."""
    providers: tuple[str, ...] = ()
    """Names of those whose models may be called, at the caller's cost; their keys stay outside."""


class Capabilities(Grants, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Grants, and the weakest tier that will do: lower than scoped, it is to be granted as well."""

    containment: Tier | None = None


class Item(NamedTuple):
    """One thing that is asked for or granted."""

    kind: str
    """read, write, host, env, secret, provider or tier."""
    value: str

    def __str__(self) -> str:
        return f"{self.kind}={self.value}"


_FIELD_OF = {
    "read": "read",
    "write": "write",
    "host": "hosts",
    "env": "env",
    "secret": "secrets",
    "provider": "providers",
}
KINDS = (*_FIELD_OF, "tier")


def items_of(capabilities: Grants) -> tuple[Item, ...]:
    """Return all that *capabilities* name, one by one."""
    items = [
        Item(kind, value)
        for kind, field in _FIELD_OF.items()
        for value in dict.fromkeys(getattr(capabilities, field))
    ]
    if isinstance(capabilities, Capabilities) and capabilities.containment is not None:
        items.append(Item("tier", capabilities.containment))
    return tuple(items)


def grants_of(items: Iterable[Item]) -> Grants:
    """Return *items* together, but for tiers."""
    found = list(items)
    return Grants(
        **{
            field: tuple(item.value for item in found if item.kind == kind)
            for kind, field in _FIELD_OF.items()
        }
    )


def missing(asked: Iterable[Item], granted: Iterable[Item]) -> tuple[Item, ...]:
    """Return what of *asked* nothing in *granted* covers."""
    known = tuple(granted)
    return tuple(item for item in asked if not any(covers(grant, item) for grant in known))


def effective(asked: Iterable[Item], granted: Iterable[Item]) -> Grants:
    """Return what a run gets: what was asked for and granted, as it was asked for."""
    wanted = tuple(asked)
    lacking = set(missing(wanted, granted))
    return grants_of(item for item in wanted if item not in lacking)


def granted_by(
    asked: Iterable[Item], sources: Mapping[str, Iterable[Item]]
) -> dict[Item, str | None]:
    """Return for everything *asked* the first of the *sources* that grants it; None if none does."""
    known = {name: tuple(items) for name, items in sources.items()}
    return {
        item: next((name for name, its in known.items() if any(covers(i, item) for i in its)), None)
        for item in asked
    }


def covers(grant: Item, ask: Item) -> bool:
    """Tell whether *grant* gives what *ask* wants. What may be written may also be read."""
    if ask.kind in ("read", "write"):
        return grant.kind in (ask.kind, "write") and is_beneath(ask.value, grant.value)
    if grant.kind != ask.kind:
        return False
    if ask.kind == "host":
        return covers_destination(grant.value, ask.value)
    if ask.kind == "tier":
        return is_weaker(grant.value, ask.value) or grant == ask
    return grant.value == ask.value


def is_beneath(path: str, folder: str) -> bool:
    """Tell whether *path* is *folder* or lies in it, by whole components."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def overlap(grants: Grants) -> tuple[str, str] | None:
    """Return a path to read and a path to write of which one lies in the other, if there are such."""
    for read in grants.read:
        for write in grants.write:
            if is_beneath(read, write) or is_beneath(write, read):
                return read, write
    return None


def is_weaker(tier: str, other: str) -> bool:
    """Tell whether *tier* contains less than *other*."""
    return TIERS.index(tier) > TIERS.index(other)


def lowers_floor(wanted: Tier | None, callers: Iterable[Tier]) -> bool:
    """Tell whether a manifest that is content with *wanted* asks for less than it would get.

    Where one of the *callers* named a floor, that floor stands, whatever a manifest says.
    """
    return wanted is not None and not tuple(callers) and is_weaker(wanted, USUAL_FLOOR)


def floor_of(wanted: Tier | None, callers: Iterable[Tier]) -> Tier:
    """Return the weakest tier that will do for all: the strictest of what was said.

    A *wanted* tier that lowers the floor was granted before.
    """
    said: set[Tier | None] = {*callers, wanted}
    for tier in TIERS:
        if tier in said:
            return tier
    return USUAL_FLOOR
