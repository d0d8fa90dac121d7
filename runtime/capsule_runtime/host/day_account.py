"""One supervisor's access to the ceilings of the day."""

from __future__ import annotations

from msgspec import Struct

from capsule_runtime.core.ceilings import DayCeilings
from capsule_runtime.core.day_share import Needs, Share
from capsule_runtime.host.clock import Clock
from capsule_runtime.host.reservations import Claim
from capsule_runtime.host.store import Store

_DATE = len("2026-01-31")


class DayAccount(Struct, frozen=True):
    """What the runs of *owner* may take of each day."""

    store: Store
    owner: str
    clock: Clock
    ceilings: DayCeilings

    def claim(self, run: str, needs: Needs) -> Claim:
        """Return what *run* asks of the day that it is now, in UTC."""
        day = self.clock.moment().at[:_DATE]
        return Claim(run, self.owner, day, self.ceilings, needs)

    async def reserve(self, run: str, needs: Needs) -> Share:
        """Reserve what *run* needs, as far as there is enough; return what it holds then.

        Raises:
            StoreError: it cannot be written.
        """
        return await self.store.reserve(self.claim(run, needs))
