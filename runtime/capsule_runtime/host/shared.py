"""What every attempt of one supervisor shares."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import anyio
from msgspec import Struct

from capsule_runtime.host.clock import Clock
from capsule_runtime.host.day_account import DayAccount
from capsule_runtime.host.hub import Hub
from capsule_runtime.host.process import Warden
from capsule_runtime.host.resource_watch import ResourceWatch

if TYPE_CHECKING:
    from capsule_runtime.host.gateway import Upstreams
    from capsule_runtime.host.network import Network


class Outside:
    """The network, and the places of all connections: looked up when the first run has a door."""

    def __init__(self) -> None:
        self._upstreams: Upstreams | None = None

    @cached_property
    def network(self) -> Network:
        """Return the network of this machine."""
        from capsule_runtime.host.network import SystemNetwork

        return SystemNetwork()

    @property
    def upstreams(self) -> Upstreams:
        """Return the connections to providers, which all runs share; `close` closes them."""
        if self._upstreams is None:
            from capsule_runtime.host.gateway import Upstreams

            self._upstreams = Upstreams.open()
        return self._upstreams

    async def close(self) -> None:
        """Close what is open, if anything is."""
        if self._upstreams is not None:
            await self._upstreams.close()

    @cached_property
    def places(self) -> anyio.Semaphore:
        """Return how many connections all runs together may hold."""
        from capsule_runtime.host.passage import places_of_all

        return places_of_all()


class Host(Struct, frozen=True):
    """The machine, as far as attempts need it."""

    warden: Warden
    hub: Hub
    clock: Clock
    resources: ResourceWatch
    outside: Outside
    """What runs reach through their doors."""
    day: DayAccount | None = None
    """Where runs get what they may spend of a day; None where the day has no ceiling."""


def watch_of(hub: Hub) -> ResourceWatch:
    """Return what looks at all runs whose output *hub* reads."""
    return ResourceWatch(lambda: hub.served_at)
