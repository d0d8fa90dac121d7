"""Act when a limit is due. One sleep for all limits of a run, never a timer a line."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio

from capsule_runtime.core.limits import Deadlines, GraceOver, LimitPassed, Limits
from capsule_runtime.core.outcome import Reason
from capsule_runtime.core.run import Run
from capsule_runtime.deciding import Decider
from capsule_runtime.host.clock import Clock
from capsule_runtime.host.waiting import waiting


class DeadlineWatch:
    """The clocks of one attempt, and who acts on them. `run` must be running."""

    def __init__(
        self,
        run: Run,
        decider: Decider,
        clock: Clock,
        limits: Limits,
        ask_stop: Callable[[Reason, str], Awaitable[None]],
    ) -> None:
        self._run = run
        self._decider = decider
        self._clock = clock
        self._grace = limits.grace
        self._ask_stop = ask_stop
        self._deadlines = Deadlines(limits)
        self._moved = waiting()
        self._watched = run.phase

    def started(self, now: float) -> None:
        """Start the clocks: the harness runs."""
        self._deadlines.started(now)

    def heard(self, now: float) -> None:
        """Restart the idle clock: the harness said something."""
        self._deadlines.heard(now)
        if self._run.phase is not self._watched:
            self._moved.wake()  # what it waits for now may be due sooner

    def shorten_grace(self, seconds: float) -> None:
        """Let the harness have at most *seconds* to leave."""
        self._grace = min(self._grace, seconds)

    def give_grace(self) -> None:
        """Start the time that the harness has to leave."""
        self._deadlines.give_grace(self._clock.moment().now, self._grace)
        self._moved.wake()

    async def run(self) -> None:
        """Act on what is due, for ever.

        Raises:
            StoreError: the log cannot be written.
        """
        while True:
            # Nothing is awaited from here to the wait: no word of what has moved can be missed.
            now = self._clock.moment().now
            match self._deadlines.due(self._run.phase, now):
                case None:
                    self._watched = self._run.phase
                    with anyio.move_on_after(self._deadlines.next(self._watched) - now):
                        await self._moved.wait()
                case GraceOver():
                    await self._decider.decide(self._run.grace_over)
                case LimitPassed(reason, message):
                    await self._ask_stop(reason, message)
