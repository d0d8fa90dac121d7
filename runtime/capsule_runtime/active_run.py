"""A run as its supervisor's caller holds it: follow it, wait for it, stop it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import anyio

from capsule_runtime.attempt import Attempt
from capsule_runtime.core.chain import Row
from capsule_runtime.core.log import Record
from capsule_runtime.core.outcome import Reason
from capsule_runtime.embedding import Frames, RunResult, result_of
from capsule_runtime.errors import StoreError
from capsule_runtime.frames import Frame
from capsule_runtime.host.clock import new_id
from capsule_runtime.host.run_log import RunLog
from capsule_runtime.host.waiting import Once
from capsule_runtime.logs import Logs
from capsule_runtime.messages import Refused
from capsule_runtime.shelters import Work
from capsule_runtime.steering import STEER, Words, has_ended, refusal, words_for


class ActiveRun:
    """A run of this supervisor, from its start on: a `RunHandle`, and a little more."""

    def __init__(
        self,
        log: RunLog,
        context: str,
        attempt: Attempt,
        shelter: Callable[[Work], None],
        out: Path,
        logs: Logs,
        notes: tuple[str, ...],
    ) -> None:
        self.id = log.run
        self.context = context
        self.logs = logs
        self.notes = notes
        """What a person should know of the launch; the log has it too."""
        self._log = log
        self._attempt = attempt
        self._shelter = shelter
        self._out = out
        self._ended = Once()
        self._failures: list[StoreError] = []

    def follow(self, after: int = 0) -> AsyncIterator[Row]:
        """Yield the rows of the log beyond entry *after* as they are committed, until the end."""
        return self._log.feed.follow(after)

    def frames(self, after: int = 0) -> AsyncIterator[Frame]:
        return Frames(self.follow(after))

    async def wait(self) -> RunResult:
        return result_of(await self.record(), self._out)

    async def interrupt(self) -> None:
        await self.stop(Reason.INTERRUPTED)

    async def kill(self) -> None:
        await self.stop(Reason.KILLED)
        await self.record()

    async def steer(self, text: str) -> str:
        asked = words_for(self.id, new_id(STEER), text)
        refused: list[Refused] = []

        async def hand_over() -> None:
            refused.extend(await self.hand_over(asked))

        await self._surely(hand_over)
        for why in refused:
            raise refusal(why)
        return asked.id

    def begin_to_steer(self, words: Words) -> None:
        """Hand *words* to the harness as soon as it works, and wait for nothing."""

        async def hand_over() -> None:
            # A log that cannot be written ends its run; whoever waits for it hears of that.
            with suppress(StoreError):
                await self.hand_over(words)

        self._shelter(hand_over)

    async def hand_over(self, words: Words) -> list[Refused]:
        """Hand *words* to the working harness; return why not, if it was not given them."""
        if self._ended.is_set():
            return [has_ended(self.id)]
        refused = await self._attempt.steer(words.id, words.text)
        return [] if refused is None else [refused]

    async def record(self) -> Record:
        """Wait for the end and return all that is known of the run.

        Raises:
            StoreError: the log could not be written to its end.
        """
        await self._ended.wait()
        for failure in self._failures:
            raise failure
        return self._log.record

    async def stop(self, reason: Reason, message: str = "", *, grace: float | None = None) -> None:
        """Ask the run to stop; return once that is on record. The first reason is the outcome's.

        *grace* shortens what the harness is given to leave, in seconds; `Reason.KILLED` gives none.

        Raises:
            StoreError: the log cannot be written.
        """
        if not self._ended.is_set():
            await self._surely(partial(self._attempt.ask_stop, reason, message, grace=grace))

    async def _surely(self, work: Work) -> None:
        """Do *work* to its end. What is on record must be done, whoever asked may be cancelled."""
        done = anyio.Event()
        failures: list[StoreError] = []

        async def do() -> None:
            try:
                await work()
            except StoreError as failure:
                failures.append(failure)
            finally:
                done.set()

        self._shelter(do)
        await done.wait()
        for failure in failures:
            raise failure

    @property
    def may_have_left(self) -> bool:
        """Whether its burial is on record, and did not prove that nothing of it lives."""
        tree = self._log.record.tree
        return tree is not None and tree.left != 0

    async def over(self) -> None:
        """Wait until nothing more happens: its end is on record, or its log is lost."""
        await self._ended.wait()

    async def carry_out(self) -> None:
        """Do the attempt, to its recorded end. Called once, by the supervisor."""
        try:
            await self._attempt.carry_out()
        except* StoreError as group:
            # One run's log is lost; the supervisor and its other runs go on.
            self._failures = list(_leaves(group))
            for failure in self._failures:
                self.logs.trouble(failure)
        finally:
            self._log.close()
            self._ended.set()
        if not self._failures:
            await self._attempt.tidy()


def _leaves(group: BaseExceptionGroup[StoreError]) -> Iterator[StoreError]:
    for inner in group.exceptions:
        if isinstance(inner, BaseExceptionGroup):
            yield from _leaves(inner)
        else:
            yield inner
