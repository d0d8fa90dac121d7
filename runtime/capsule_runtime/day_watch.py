"""Get a run more of the day's ceilings, when it has used what it holds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

import anyio

from capsule_runtime.core.day_share import Needs, Share
from capsule_runtime.core.run import Run
from capsule_runtime.deciding import Decider


class DayWatch:
    """Who asks the store on behalf of one attempt. `run` must be running."""

    def __init__(
        self, run: Run, decider: Decider, reserve: Callable[[Needs], Awaitable[Share]]
    ) -> None:
        self._run = run
        self._decider = decider
        self._reserve = reserve
        self._needs = Needs()
        self._asked = anyio.Event()

    def ask(self, needs: Needs) -> None:
        """Have what covers *needs* reserved, and the run told of it. Returns at once."""
        self._needs = needs
        self._asked.set()

    async def run(self) -> None:
        """Do what is asked, for ever.

        Raises:
            StoreError: the store cannot be written.
        """
        while True:
            await self._asked.wait()
            self._asked = anyio.Event()
            share = await self._reserve(self._needs)
            await self._decider.decide(partial(self._run.share, share))
