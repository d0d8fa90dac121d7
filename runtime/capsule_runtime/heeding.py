"""Do what others ask of our runs: their requests stand in the store, and the doorbell rings."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

import anyio

from capsule_runtime.active_run import ActiveRun
from capsule_runtime.core.outcome import Reason
from capsule_runtime.errors import StoreError
from capsule_runtime.host.clock import Clock
from capsule_runtime.host.control import POLL_SECONDS, Doorbell
from capsule_runtime.host.store import Store
from capsule_runtime.logs import Logs
from capsule_runtime.steering import STEER, decode

STOP_REASONS = frozenset({Reason.INTERRUPTED, Reason.KILLED, Reason.HANG_UP, Reason.TERMINATED})
"""What other processes may ask a run to stop for."""


class Heeder:
    """Take the requests for the runs of one owner."""

    def __init__(
        self, store: Store, owner: str, runs: Mapping[str, ActiveRun], clock: Clock, logs: Logs
    ) -> None:
        self._store = store
        self._owner = owner
        self._runs = runs
        self._clock = clock
        self._logs = logs
        # A request that one task has taken is done before another finds nothing left to take.
        self._heeding = anyio.Lock()

    async def serve(self, door: Doorbell) -> None:
        """Do what is asked from now on, for ever."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._look, door)
            while True:
                await door.rung()
                await self.heed()

    async def _look(self, door: Doorbell) -> None:
        """Find what was asked without a ring, at little cost: a supervisor may be at rest for days."""
        while True:
            await anyio.sleep(POLL_SECONDS)
            was_rung = door.take_rings() > 0
            if (door.has_changed() or was_rung) and await self.heed() and not was_rung:
                self._logs.warning("a doorbell was lost")

    async def heed(self) -> int:
        """Do what others have asked so far; return how many requests that was."""
        taken = 0
        async with self._heeding, anyio.create_task_group() as stops:
            # Whoever asked looks whether it was taken, and is told by `Runs.ask` if it was not.
            try:
                at = self._clock.moment().at
                for request in await self._store.take_requests(self._owner, at):
                    taken += 1
                    active = self._runs.get(request.run)
                    if active and request.verb == STEER:
                        if (words := decode(request.body)) is None:
                            active.logs.warning("a request holds no words", verb=request.verb)
                            continue
                        active.logs.info("request heeded", verb=request.verb)
                        active.begin_to_steer(words)
                    elif active and request.verb in STOP_REASONS:
                        active.logs.info("request heeded", verb=request.verb)
                        stops.start_soon(_stop, active, Reason(request.verb))
            except StoreError as error:
                self._logs.trouble(error)
        return taken


async def _stop(active: ActiveRun, reason: Reason) -> None:
    # A log that cannot be written ends its run; whoever waits for the run hears of it.
    with suppress(StoreError):
        await active.stop(reason)
