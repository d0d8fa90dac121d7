"""Verdicts on what a run tried to reach become facts of its log, in the order in which they came."""

from __future__ import annotations

import anyio

from capsule_runtime.core.actions import Action
from capsule_runtime.core.egress_facts import Make, VerdictBook
from capsule_runtime.core.journal import Moment
from capsule_runtime.core.run import Run
from capsule_runtime.core.verdicts import Door, Verdict
from capsule_runtime.deciding import Decider


class EgressLog:
    """Between the doors of a run, which wait for nobody, and its log."""

    def __init__(self, run: Run, decider: Decider) -> None:
        self._run = run
        self._decider = decider
        self._book = VerdictBook()
        self._waiting: list[Make] = []
        self._came = anyio.Event()

    def tell(self, door: Door, verdict: Verdict) -> None:
        """Take the verdict on one who came to *door*; waits for nothing."""
        if (make := self._book.enter(door, verdict)) is not None:
            self._waiting.append(make)
            self._came.set()

    async def write(self) -> None:
        """Write verdicts as they come, until cancelled.

        Raises:
            StoreError: the log cannot be written.
        """
        while True:
            await self._came.wait()
            self._came = anyio.Event()
            await self._decider.decide(self._take)

    async def finish(self) -> None:
        """Write what is left. Once the doors are closed, and before the end of the run is decided.

        Raises:
            StoreError: the log cannot be written.
        """
        if (rest := self._book.rest()) is not None:
            self._waiting.append(rest)
        if self._waiting:
            await self._decider.decide(self._take)

    def _take(self, moment: Moment) -> list[Action]:
        # Taken where it is decided: whoever is cancelled before has taken nothing.
        taken, self._waiting = self._waiting, []
        return [action for make in taken for action in self._run.record(make, moment)]
