"""What every attempt of one supervisor shares."""

from __future__ import annotations

from dataclasses import dataclass

import anyio

from capsule_runtime.host.clock import Clock
from capsule_runtime.host.day_account import DayAccount
from capsule_runtime.host.hub import Hub
from capsule_runtime.host.network import Network
from capsule_runtime.host.process import Warden
from capsule_runtime.host.resource_watch import ResourceWatch


@dataclass(frozen=True, slots=True)
class Host:
    """The machine, as far as attempts need it."""

    warden: Warden
    hub: Hub
    clock: Clock
    resources: ResourceWatch
    network: Network
    places: anyio.Semaphore
    """How many connections all runs together may hold."""
    day: DayAccount | None = None
    """Where runs get what they may spend of a day; None where the day has no ceiling."""
