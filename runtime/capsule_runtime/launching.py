"""What the launch of an attempt needs, and nothing after it: an attempt may run for days."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import anyio.to_thread
from msgspec import Struct

from capsule_runtime.core.facts import AttemptStarted
from capsule_runtime.core.limits import Limits
from capsule_runtime.driver import Driver
from capsule_runtime.host.capsule import Launch, Places
from capsule_runtime.host.handing import Handing
from capsule_runtime.host.homes import check_names, write_files
from capsule_runtime.host.state import make_places, open_ways
from capsule_runtime.host.workroom import Workroom

if TYPE_CHECKING:
    from capsule_runtime.core.redactor import Redactor
    from capsule_runtime.gateway_plan import GatewayPlan


class Launching(Struct, frozen=True):
    """What is launched, where, and how that is recorded."""

    launch: Launch
    places: Places
    driver: Driver
    limits: Limits
    started: Callable[[int, str, str], AttemptStarted]
    workroom: Workroom
    handing: Handing
    """What belongs to the run's user while it works."""
    notes: tuple[str, ...] = ()
    """What a person should know of the launch."""
    redactor: Redactor | None = None
    """What keeps the secrets of the run out of its stderr."""
    gateway: GatewayPlan | None = None
    """By which it calls models."""

    def write_places(self) -> None:
        """Make the folders of the run, and write what its driver wants in them.

        Raises:
            HarnessError: the driver names files that cannot be.
            HostError: they cannot be written.
        """
        make_places(self.places)
        check_names(self.launch.plan.collect)
        write_files(self.places.home, self.launch.plan.files)

    async def hand_over(self) -> None:
        """Give the run's user what is its while it works; a HOME may be large.

        Raises:
            HostError: the system refuses.
        """
        if self.handing.user is not None:
            await anyio.to_thread.run_sync(self._give)

    def _give(self) -> None:
        if self.launch.walls is not None and self.launch.walls.scope is not None:
            open_ways(self.places)
        self.handing.give()
