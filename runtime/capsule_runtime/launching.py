"""What the launch of an attempt needs, and nothing after it: an attempt may run for days."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from capsule_runtime.core.facts import AttemptStarted
from capsule_runtime.core.limits import Limits
from capsule_runtime.driver import Driver
from capsule_runtime.host.capsule import Launch, Places
from capsule_runtime.host.homes import check_names, write_files
from capsule_runtime.host.state import make_places
from capsule_runtime.host.workroom import Workroom

if TYPE_CHECKING:
    from capsule_runtime.core.redactor import Redactor


class Launching(Struct, frozen=True):
    """What is launched, where, and how that is recorded."""

    launch: Launch
    places: Places
    driver: Driver
    limits: Limits
    started: Callable[[int, str, str], AttemptStarted]
    workroom: Workroom
    notes: tuple[str, ...] = ()
    """What a person should know of the launch."""
    redactor: Redactor | None = None
    """What keeps the secrets of the run out of its stderr."""

    def write_places(self) -> None:
        """Make the folders of the run, and write what its driver wants in them.

        Raises:
            HarnessError: the driver names files that cannot be.
            HostError: they cannot be written.
        """
        make_places(self.places)
        check_names(self.launch.plan.collect)
        write_files(self.places.home, self.launch.plan.files)
