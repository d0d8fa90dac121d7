"""Decide and perform, as one step. The log is ahead of every act.

Entries must reach the log in the order in which `Run` numbered them, whoever made it decide (output,
a limit, a person): so one at a time decides, and performs before the next one decides.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio

from capsule_runtime.core.actions import (
    Action,
    Bury,
    HandOver,
    Interrupt,
    Reply,
    TopUp,
    WindDown,
    WriteResult,
)
from capsule_runtime.core.day_share import Needs, Share
from capsule_runtime.core.journal import Append, Moment
from capsule_runtime.core.run import Run
from capsule_runtime.core.states import State
from capsule_runtime.host.clock import Clock
from capsule_runtime.host.run_log import RunLog

Act = WriteResult | Reply | HandOver | Interrupt | WindDown | Bury
"""An action that is no write to the log, and no question."""


class Decider:
    """Let a run decide, write what it decided, and have the rest done by *act*."""

    def __init__(
        self,
        run: Run,
        log: RunLog,
        clock: Clock,
        act: Callable[[Act], str | None],
        reserve: Callable[[Needs], Awaitable[Share]] | None = None,
    ) -> None:
        """*act* performs one action and returns what went wrong, if anything did.

        *reserve* gets the run more of the day, where the day has ceilings.
        """
        self.turn = anyio.Lock(fast_acquire=True)
        """Held by whoever decides."""
        self._run = run
        self._log = log
        self._clock = clock
        self._act = act
        self._reserve = reserve
        self._troubles: list[str] = []

    async def decide(self, decide: Callable[[Moment], list[Action]]) -> None:
        """Decide and perform; return once all of it is on disk.

        Raises:
            StoreError: the log cannot be written.
        """
        async with self.turn:
            await self.perform(decide(self._clock.moment()))
        await self._log.settled()

    @property
    def is_free(self) -> bool:
        """Whether something that needs no act can be decided and written without waiting."""
        return not (self.turn.locked() or self._log.is_full or self._troubles)

    def write(self, actions: list[Action]) -> None:
        """Queue *actions*, none of which is an act, while `is_free`."""
        self._log.put([action for action in actions if isinstance(action, Append)])

    async def begin(self) -> None:
        """Take the turn; where it is free, as it nearly always is, without a detour by the loop."""
        try:
            self.turn.acquire_nowait()
        except anyio.WouldBlock:
            await self.turn.acquire()

    async def perform(self, actions: list[Action]) -> None:
        """Perform *actions* in order, while the turn is ours.

        Raises:
            StoreError: the log cannot be written.
        """
        appends: list[Append] = []
        replies: list[Reply] = []
        asked: TopUp | None = None
        for action in actions:
            match action:
                case Append():
                    appends.append(action)
                case TopUp():
                    asked = action
                case Reply():
                    replies.append(action)  # a harness may ask a thousand times in one breath
                case _:
                    await self._commit(appends, replies)
                    appends, replies = [], []
                    self._try(action)
        if replies:
            await self._commit(appends, replies)
        else:
            self._log.put(appends)
            if self._log.is_full:
                await self._log.room()
        if asked is not None and self._reserve is not None:
            # Nothing more is decided before the answer: what comes next may be too much already.
            share = await self._reserve(asked.needs)
            await self.perform(self._run.share(share, self._clock.moment()))
        # What went wrong in an act is noted behind the entries that were numbered before it; but
        # nothing stands behind the final status.
        if self._troubles and self._run.state is not State.ENDED:
            await self.note_troubles()

    def trouble(self, text: str) -> None:
        """Keep *text* for the next note."""
        self._troubles.append(text)

    async def note_troubles(self) -> None:
        """Note what went wrong so far, while the turn is ours."""
        troubles, self._troubles = self._troubles, []
        moment = self._clock.moment()
        for trouble in troubles:
            await self.perform(self._run.note(trouble, moment))

    async def _commit(self, appends: list[Append], replies: list[Reply]) -> None:
        """Write *appends*, and once they are on disk, answer the harness."""
        self._log.put(appends)
        await self._log.settled()
        for reply in replies:
            self._try(reply)

    def _try(self, action: Act) -> None:
        if (trouble := self._act(action)) is not None:
            self._troubles.append(trouble)
