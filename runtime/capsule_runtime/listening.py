"""Hear the harness: its output becomes lines, the driver makes events of them, the run decides."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import cast, get_args

import anyio
import anyio.abc

from capsule_runtime.core.facts import Remembered
from capsule_runtime.core.journal import Moment
from capsule_runtime.core.limits import Limits
from capsule_runtime.core.lines import HEAD_BYTES, LineBuffer, Lines
from capsule_runtime.core.outcome import Reason
from capsule_runtime.core.run import SPENDING, Run
from capsule_runtime.core.units import show_size
from capsule_runtime.deciding import Decider
from capsule_runtime.driver import Said
from capsule_runtime.events import Event, Request, Terminal
from capsule_runtime.guarded import BESIDE_EVENTS, GuardedDriver
from capsule_runtime.host.clock import Clock
from capsule_runtime.host.stdio import Output, StderrLog, Stdio
from capsule_runtime.host.waiting import Once
from capsule_runtime.messages import Remember, Send

_REMEMBERED_BYTES = 64 * 1024
_NOTHING_SAID: Sequence[Said] = ()
_WITHOUT_ACTS = frozenset[type](get_args(Event)) - frozenset[type](
    (*get_args(Terminal), *get_args(Request))
)
"""Events of which nothing follows but entries of the log, unless too much was spent."""
_WITHOUT_ACTS_BOUNDED = _WITHOUT_ACTS.difference(SPENDING)
"""The same, where what is spent may be too much."""


class Listener:
    """Read both outputs of one harness, within its limits."""

    def __init__(
        self,
        run: Run,
        decider: Decider,
        driver: GuardedDriver,
        clock: Clock,
        limits: Limits,
        *,
        heard: Callable[[float], None],
        send: Callable[[bytes], None],
        ask_stop: Callable[[Reason, str], Awaitable[None]],
    ) -> None:
        """*heard* is told when something was said, *send* writes to the harness's stdin."""
        self._run = run
        self._decider = decider
        self._driver = driver
        self._clock = clock
        self._limits = limits
        self._heard = heard
        self._send = send
        self._ask_stop = ask_stop
        self._without_acts = _WITHOUT_ACTS_BOUNDED if run.ledger.is_bounded else _WITHOUT_ACTS
        self._lines = LineBuffer(limits.line, HEAD_BYTES)
        self._output_bytes = 0
        self._begun: tuple[Lines, Sequence[Said]] | None = None

    def begin(
        self,
        tasks: anyio.abc.TaskGroup,
        stdio: Stdio,
        log: StderrLog,
        closed: Callable[[], None],
    ) -> Once:
        """Read both outputs as *tasks*; *closed* is called at the end of stdout.

        Returns:
            What is set at the end of both.
        """
        reading = 2
        drained = Once()

        def ended() -> None:
            nonlocal reading
            reading -= 1
            if not reading:
                drained.set()

        async def read_stdout() -> None:
            await self.read_stdout(stdio.stdout)
            closed()
            ended()

        async def read_stderr() -> None:
            await self.read_stderr(stdio.stderr, log)
            ended()

        tasks.start_soon(read_stdout)
        tasks.start_soon(read_stderr)
        return drained

    async def read_stdout(self, stdout: Output) -> None:
        """Read *stdout* to its end and hear what it says."""
        stdout.offer(self.take)
        while chunk := await stdout.read():
            begun, self._begun = self._begun, None
            if not self._fits(chunk):
                await self._stop_flood()
            elif begun is not None:
                await self._hear(*begun)
            else:
                await self._hear(self._lines.feed(chunk))
        rest = self._lines.close()
        # What the limit has cut off is no line of the harness's.
        is_cut = self._output_bytes > self._limits.output
        await self._hear(Lines(b"", rest.skipped) if is_cut else rest)

    def take(self, chunk: bytes) -> bool:
        """Hear *chunk* here and now, if nothing that it says needs to be waited for.

        Nearly all of a stream is such: fragments, which only go to the log. False leaves *chunk* to
        `read_stdout`, which goes on where this stopped.
        """
        is_small_enough = self._output_bytes + len(chunk) <= self._limits.output
        if not (is_small_enough and self._decider.is_free) or self._driver.fault:
            return False
        lines = self._lines.feed(chunk)
        said = self._driver.receive(lines.block) if lines.block else _NOTHING_SAID
        if (
            lines.skipped
            or self._driver.fault
            or not self._without_acts.issuperset(map(type, said))
        ):
            self._begun = lines, said
            return False
        self._output_bytes += len(chunk)
        if lines.block:
            moment = self._clock.moment()
            self._decider.write(self._run.receive(cast("Sequence[Event]", said), moment))
            self._heard(moment.now)
        return True

    async def read_stderr(self, stderr: Output, log: StderrLog) -> None:
        """Read *stderr* to its end into *log*."""
        try:
            while chunk := await stderr.read():
                if self._fits(chunk):
                    log.write(chunk)
                else:
                    await self._stop_flood()
        finally:
            log.finish()

    def _fits(self, chunk: bytes) -> bool:
        """Count *chunk* against the output limit; past it, output is read and dropped."""
        self._output_bytes += len(chunk)
        return self._output_bytes <= self._limits.output

    async def _stop_flood(self) -> None:
        limit = show_size(self._limits.output)
        await self._ask_stop(Reason.OUTPUT, f"the harness wrote more than its limit of {limit}")

    async def _hear(self, lines: Lines, said: Sequence[Said] | None = None) -> None:
        """Hand complete lines to the driver, and what they mean (*said*, if known) to the run."""
        if not (lines.block or lines.skipped) or (self._driver.fault and said is None):
            return
        await self._decider.begin()
        try:
            moment = self._clock.moment()
            for length in lines.skipped:
                limit = show_size(self._limits.line)
                note = f"a line of {show_size(length)} was skipped; the limit is {limit}"
                await self._decider.perform(self._run.note(note, moment))
            if lines.block:
                await self._take(
                    self._driver.receive(lines.block) if said is None else said, moment
                )
            self._heard(moment.now)
        finally:
            self._decider.turn.release()
        if self._driver.fault:
            await self._ask_stop(Reason.DRIVER_FAILED, self._driver.fault)

    async def _take(self, said: Sequence[Said], moment: Moment) -> None:
        """Perform what the driver made of a block of lines, in order."""
        # Under a ceiling of the day each event waits for what the one before it asked of the store.
        if self._run.ledger.share is None and BESIDE_EVENTS.isdisjoint(map(type, said)):
            await self._decider.perform(self._run.receive(cast("Sequence[Event]", said), moment))
            return
        for item in said:
            match item:
                case Send(data):
                    self._send(data)
                case Remember():
                    await self._remember(item.data, moment)
                case _:
                    await self._decider.perform(self._run.receive([item], moment))

    async def _remember(self, data: bytes, moment: Moment) -> None:
        if len(data) > _REMEMBERED_BYTES:
            note = f"the driver wanted to remember {show_size(len(data))}: more than 64 KiB"
            await self._decider.perform(self._run.note(note, moment))
            return
        kept = partial(Remembered, data=data)
        await self._decider.perform(self._run.record(kept, moment))
