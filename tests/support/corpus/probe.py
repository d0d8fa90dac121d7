"""What a probe is, and the list of all."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field

from support.corpus.rig import Rig

Deed = Callable[[Rig], Awaitable[Iterable[str]]]
"""Tries something by several routes; returns those by which, as the host saw, it got out."""


@dataclass(frozen=True, slots=True)
class Probe:
    """One thing that a harness may try."""

    number: int
    tries: str
    deed: Deed
    stated: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """By tier: the routes that are open there, as the tier's description says."""
    nowhere: str = ""
    """Why it cannot escape, not even without walls."""
    needs_root: bool = False
    """Whether without walls only root gets out."""
    is_ceiling: bool = False
    """Whether what must hold is a limit."""

    def open_in(self, promises: str, route: str) -> bool:
        """Whether *route* is said to be open in the tier that *promises* names."""
        known = self.stated.get(promises, ())
        return "*" in known or route in known

    def __str__(self) -> str:
        return f"{self.number:02}-{self.deed.__name__.replace('_', '-')}"


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A probe of the list that is a test of its own, or waits for what it is to try."""

    number: int
    tries: str
    where: str


PROBES: list[Probe] = []


def probe(
    number: int,
    tries: str,
    *,
    stated: Mapping[str, tuple[str, ...]] | None = None,
    nowhere: str = "",
    needs_root: bool = False,
    is_ceiling: bool = False,
) -> Callable[[Deed], Deed]:
    """Put what is decorated into `PROBES`."""

    def put(deed: Deed) -> Deed:
        PROBES.append(Probe(number, tries, deed, stated or {}, nowhere, needs_root, is_ceiling))
        return deed

    return put
