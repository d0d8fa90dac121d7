"""One attempt: read, decide, act. The only loop over a harness.

`Run` decides; this module performs what it returns, in order. Entries are committed before the act
they announce, and before anything later is decided.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from signal import SIGKILL
from typing import TypeVar, assert_never, cast, get_args

import anyio

from capsule_runtime.core.actions import (
    Action,
    Burial,
    Bury,
    Interrupt,
    Reply,
    WindDown,
    WriteResult,
)
from capsule_runtime.core.facts import AttemptStarted, Remembered
from capsule_runtime.core.journal import Append, Moment
from capsule_runtime.core.limits import NEVER, Deadlines, GraceOver, LimitPassed, Limits
from capsule_runtime.core.lines import LineBuffer, Lines
from capsule_runtime.core.outcome import Reason
from capsule_runtime.core.run import Run
from capsule_runtime.core.states import State
from capsule_runtime.core.units import show_size
from capsule_runtime.driver import Description, Driver, Said
from capsule_runtime.errors import HarnessError, HostError
from capsule_runtime.events import Event
from capsule_runtime.host.capsule import Launch, Places
from capsule_runtime.host.clock import Clock
from capsule_runtime.host.homes import check_names, collect_files, write_files, write_result
from capsule_runtime.host.hub import Hub
from capsule_runtime.host.process import Spawn, Tree, Warden
from capsule_runtime.host.run_log import RunLog
from capsule_runtime.host.state import make_places
from capsule_runtime.host.stdio import WIDE_PIPE_BYTES, Output, StderrLog, Stdio, open_stdio
from capsule_runtime.messages import Exit, Remember, Send

DRAIN_SECONDS = 10.0
"""How long output may go on once no process of the run is left to write any."""


_REMEMBERED_BYTES = 64 * 1024
_T = TypeVar("_T")
_BESIDE_EVENTS = frozenset[type]({Send, Remember})
_EVENTS = frozenset[type](get_args(Event))
_SAYABLE = _EVENTS | _BESIDE_EVENTS
_NOT_PROVED = Burial(killed=0, left=None, milliseconds=0)
_NOT_DESCRIBED = Description(harness="")
_NOTHING_SAID: Sequence[Said] = ()
_NO_EVENTS: Sequence[Event] = ()


@dataclass(frozen=True, slots=True)
class Host:
    """What every attempt of one supervisor shares."""

    warden: Warden
    hub: Hub
    clock: Clock


class Attempt:
    """Carry out one launch of a harness, from its start to its one recorded end."""

    def __init__(
        self,
        host: Host,
        run: Run,
        log: RunLog,
        driver: Driver,
        limits: Limits,
        heed: Callable[[], Awaitable[None]],
    ) -> None:
        """*heed* does what others have asked of the run so far."""
        self._host = host
        self._run = run
        self._log = log
        self._driver = driver
        self._driver_fault = ""
        self._limits = limits
        self._heed = heed
        self._lines = LineBuffer(limits.line)
        self._deadlines = Deadlines(limits)
        self._deadline_moved = anyio.Event()
        self._sleeps_until = NEVER
        self._grace = limits.grace
        # Deciding and performing are one step: entries must reach the log in the order in which
        # `Run` numbered them, whoever made it decide (output, a limit, a person).
        self._deciding = anyio.Lock(fast_acquire=True)
        self._tree: Tree | None = None
        self._stdio: Stdio | None = None
        self._output_bytes = 0
        self._out = Path()
        self._troubles: list[str] = []

    async def carry_out(
        self, launch: Launch, places: Places, started: Callable[[int, str, str], AttemptStarted]
    ) -> None:
        """Launch, follow to the end, and write the one final status.

        Raises:
            StoreError: the log cannot be written. The tree is empty all the same.
        """
        await self._decide(lambda moment: self._run.record(started, moment))
        self._out = places.out
        try:
            make_places(places)
            check_names(launch.plan.collect)
            write_files(places.home, launch.plan.files)
            wide = WIDE_PIPE_BYTES if self._describe().loses_tail else None
            if self._driver_fault:
                raise HarnessError("E-HAR-005", self._driver_fault)
            with (
                open_stdio(self._host.hub, places.run, wide_bytes=wide) as stdio,
                StderrLog(places.run / "stderr.log") as stderr,
            ):
                if (tree := await self._spawn(launch, stdio)) is not None:
                    burial = await self._follow(tree, stdio, stderr)
                    files = collect_files(places.home, launch.plan.collect)
                    await self._end(tree, burial, stderr, files)
                    return
        except HarnessError as exc:
            await self._not_run(Reason.LAUNCH_FAILED, exc.message)
        except HostError as exc:
            await self._not_run(Reason.HOST_FAILED, exc.message)
        else:
            await self._not_run(Reason.INTERRUPTED, "")

    async def ask_stop(
        self, reason: Reason, message: str = "", *, grace: float | None = None
    ) -> None:
        """Ask the run to stop. The first reason on record decides the outcome.

        *grace* shortens what the harness is given to leave, in seconds.
        """
        if grace is not None:
            self._grace = min(self._grace, grace)
        await self._decide(lambda moment: self._run.ask_stop(reason, message, moment))

    async def _spawn(self, launch: Launch, stdio: Stdio) -> Tree | None:
        """Start the harness, unless somebody asked to stop before it was."""
        async with self._deciding:
            if self._run.state is not State.STARTING:
                return None
            spawn = Spawn(self._log.run, launch.argv, launch.env, launch.cwd)
            child = stdio.child
            tree = await self._host.warden.spawn(spawn, child.stdin, child.stdout, child.stderr)
            child.close()
            self._tree, self._stdio = tree, stdio
            moment = self._host.clock.moment()
            self._deadlines.started(moment.now)
            stdio.stdin.send(launch.plan.stdin)
            if not launch.plan.keep_stdin:
                stdio.stdin.end()
            try:
                await self._perform(self._run.launched(tree.pid, moment))
            except BaseException:
                await self._bury(tree)
                raise
            return tree

    async def _follow(self, tree: Tree, stdio: Stdio, stderr: StderrLog) -> Burial:
        """Read until no process is left that could write; whatever happens, the tree is buried."""
        burial = _NOT_PROVED
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(stdio.stdin.pump)
                tasks.start_soon(self._watch_deadlines)
                drained = anyio.Event()
                tasks.start_soon(self._read_outputs, stdio, stderr, drained)
                tasks.start_soon(self._log.lost)
                burial = await self._buried(tree)
                stdio.stdout.writer_gone()
                with anyio.move_on_after(DRAIN_SECONDS):
                    await drained.wait()
                # What was decided is also done: nobody is cancelled between the two.
                async with self._deciding:
                    tasks.cancel_scope.cancel()
        except BaseException:
            await self._bury(tree)
            raise
        return burial

    async def _buried(self, tree: Tree) -> Burial:
        """Wait for the empty tree; that it cannot be had is put on record, not raised."""
        try:
            burial = await tree.buried()
        except HostError as exc:
            self._troubles.append(exc.message)
            return _NOT_PROVED
        return Burial(burial.killed, burial.left, burial.milliseconds)

    async def _bury(self, tree: Tree) -> None:
        """Bury *tree* on the way out of a failure. `buried` is bounded."""
        with anyio.CancelScope(shield=True):
            tree.bury()
            await self._buried(tree)

    async def _read_outputs(self, stdio: Stdio, stderr: StderrLog, drained: anyio.Event) -> None:
        async with anyio.create_task_group() as outputs:
            outputs.start_soon(self._read_stderr, stdio.stderr, stderr)
            outputs.start_soon(self._read_stdout, stdio.stdout)
        drained.set()

    async def _read_stdout(self, stdout: Output) -> None:
        while chunk := await stdout.read():
            if await self._admit(chunk):
                await self._hear(self._lines.feed(chunk))
        rest = self._lines.close()
        # What the limit has cut off is no line of the harness's.
        is_cut = self._output_bytes > self._limits.output
        await self._hear(Lines(b"", rest.skipped) if is_cut else rest)
        # A harness that closed its output can tell us nothing more: it gets its grace to leave.
        self._give_grace()

    async def _read_stderr(self, stderr: Output, log: StderrLog) -> None:
        while chunk := await stderr.read():
            if await self._admit(chunk):
                log.write(chunk)

    async def _admit(self, chunk: bytes) -> bool:
        """Count *chunk* against the output limit; past it, output is read and dropped."""
        self._output_bytes += len(chunk)
        if self._output_bytes <= self._limits.output:
            return True
        limit = show_size(self._limits.output)
        await self.ask_stop(Reason.OUTPUT, f"the harness wrote more than its limit of {limit}")
        return False

    async def _hear(self, lines: Lines) -> None:
        """Hand complete lines to the driver, and what they mean to the run."""
        if self._driver_fault or not (lines.block or lines.skipped):
            return
        await self._begin_deciding()
        try:
            moment = self._host.clock.moment()
            self._deadlines.heard(moment.now)
            for length in lines.skipped:
                limit = show_size(self._limits.line)
                note = f"a line of {show_size(length)} was skipped; the limit is {limit}"
                await self._perform(self._run.note(note, moment))
            if lines.block:
                said = self._ask_driver(
                    lambda: _checked(self._driver.receive(lines.block), _SAYABLE), _NOTHING_SAID
                )
                await self._take(said, moment)
        finally:
            self._deciding.release()
        if self._driver_fault:
            await self.ask_stop(Reason.DRIVER_FAILED, self._driver_fault)
        elif self._deadlines.next(self._run.phase) < self._sleeps_until:
            self._deadline_moved.set()  # what it waits for now may be due sooner

    async def _begin_deciding(self) -> None:
        """Take the lock; where it is free, which is nearly always, without a detour by the loop."""
        try:
            self._deciding.acquire_nowait()
        except anyio.WouldBlock:
            await self._deciding.acquire()

    async def _take(self, said: Sequence[Said], moment: Moment) -> None:
        """Perform what the driver made of a block of lines, in order."""
        if _BESIDE_EVENTS.isdisjoint(map(type, said)):
            await self._perform(self._run.receive(cast("Sequence[Event]", said), moment))
            return
        for item in said:
            match item:
                case Send():
                    self._send(item)
                case Remember():
                    await self._remember(item.data, moment)
                case _:
                    await self._perform(self._run.receive([item], moment))

    async def _remember(self, data: bytes, moment: Moment) -> None:
        if len(data) > _REMEMBERED_BYTES:
            note = f"the driver wanted to remember {show_size(len(data))}: more than 64 KiB"
            await self._perform(self._run.note(note, moment))
            return
        kept = partial(Remembered, data=data)
        await self._perform(self._run.record(kept, moment))

    def _ask_driver(self, ask: Callable[[], _T], otherwise: _T) -> _T:
        """Return what the driver answers, or *otherwise* once it has failed."""
        if self._driver_fault:
            return otherwise
        try:
            return ask()
        except Exception as exc:  # a driver may be anybody's code: its fault ends this run only
            self._driver_fault = f"the driver failed: {type(exc).__name__}: {exc}"
            return otherwise

    def _describe(self) -> Description:
        return self._ask_driver(self._driver.describe, _NOT_DESCRIBED)

    async def _end(
        self, tree: Tree, burial: Burial, stderr: StderrLog, files: dict[str, bytes]
    ) -> None:
        exited = await tree.exited()
        async with self._deciding:
            await self._note_troubles()
        exit = Exit(exited.code, exited.signal, stderr.tail, files)
        if stderr.dropped_bytes:
            await self._note(f"{show_size(stderr.dropped_bytes)} of stderr were dropped")
        if self._stdio and (unread := self._stdio.stdin.dropped_bytes):
            await self._note(f"{show_size(unread)} for the harness were dropped: it does not read")
        if exit.signal == SIGKILL:
            await self._heed()  # whoever asked for the kill may have gone round us to the warden
        words = _NO_EVENTS
        if not self._run.has_terminal:
            words = self._ask_driver(
                lambda: _checked(self._driver.ended(exit), _EVENTS), _NO_EVENTS
            )
            if self._driver_fault:
                await self.ask_stop(Reason.DRIVER_FAILED, self._driver_fault)
        await self._decide(lambda moment: self._run.end(exit, burial, words, moment))

    async def _note(self, text: str) -> None:
        await self._decide(lambda moment: self._run.note(text, moment))

    async def _not_run(self, reason: Reason, message: str) -> None:
        """Write the end of a run whose harness never started."""
        await self._decide(lambda moment: self._run.fail(reason, message, moment))

    async def _watch_deadlines(self) -> None:
        """Act when a limit is due. One sleep for all of them, never a timer a line."""
        while True:
            self._deadline_moved = anyio.Event()
            now = self._host.clock.moment().now
            match self._deadlines.due(self._run.phase, now):
                case None:
                    self._sleeps_until = self._deadlines.next(self._run.phase)
                    with anyio.move_on_after(self._sleeps_until - now):
                        await self._deadline_moved.wait()
                case GraceOver():
                    await self._decide(self._run.grace_over)
                case LimitPassed(reason, message):
                    await self.ask_stop(reason, message)

    def _give_grace(self) -> None:
        self._deadlines.give_grace(self._host.clock.moment().now, self._grace)
        self._deadline_moved.set()

    async def _decide(self, decide: Callable[[Moment], list[Action]]) -> None:
        async with self._deciding:
            await self._perform(decide(self._host.clock.moment()))
        await self._log.settled()

    async def _perform(self, actions: list[Action]) -> None:
        """Perform *actions* in order; what stands before an act is committed before it."""
        appends: list[Append] = []
        replies: list[Reply] = []
        for action in actions:
            match action:
                case Append():
                    appends.append(action)
                case Reply():
                    replies.append(action)  # a harness may ask a thousand times in one breath
                case _:
                    await self._commit(appends, replies)
                    appends, replies = [], []
                    self._act(action)
        if replies:
            await self._commit(appends, replies)
        else:
            self._log.put(appends)
            await self._log.room()
        # What went wrong in an act is noted behind the entries that were numbered before it; but
        # nothing stands behind the final status.
        if self._troubles and self._run.state is not State.ENDED:
            await self._note_troubles()

    async def _commit(self, appends: list[Append], replies: list[Reply]) -> None:
        """Write *appends*, and once they are on disk, answer the harness."""
        self._log.put(appends)
        await self._log.settled()
        for id, decision in ((reply.id, reply.decision) for reply in replies):
            self._send(self._ask_driver(partial(self._driver.answer, id, decision), None))

    async def _note_troubles(self) -> None:
        troubles, self._troubles = self._troubles, []
        moment = self._host.clock.moment()
        for trouble in troubles:
            await self._perform(self._run.note(trouble, moment))

    def _act(self, action: WriteResult | Interrupt | WindDown | Bury) -> None:
        match action:
            case WriteResult(text):
                try:
                    write_result(self._out, text)
                except OSError as exc:
                    self._troubles.append(f"out/result.txt was not written: {exc}")
            case Interrupt():
                self._interrupt()
            case WindDown():
                if self._stdio:
                    self._stdio.stdin.end()
                self._give_grace()
            case Bury():
                if self._tree:
                    self._tree.bury()
            case _:
                assert_never(action)

    def _interrupt(self) -> None:
        """Ask the harness to stop in its own dialect; the grace runs from here."""
        signal = self._describe().interrupt_signal
        line = self._ask_driver(self._driver.interrupt, None)
        self._send(line)
        if self._tree and signal is not None:
            self._tree.signal(signal)
        if line is None and signal is None:
            self._grace = 0.0  # it cannot be asked, so there is nothing to wait for
        self._give_grace()

    def _send(self, line: Send | None) -> None:
        if self._stdio and line is not None:
            self._stdio.stdin.send(line.data)


def _checked(said: Sequence[_T], sayable: frozenset[type]) -> Sequence[_T]:
    """Return what a driver *said*, if it is what drivers may say.

    Raises:
        TypeError: it is not.
    """
    kinds = set(map(type, said))
    if not kinds <= sayable:
        odd = ", ".join(sorted(kind.__name__ for kind in kinds - sayable))
        raise TypeError(f"it said {odd}, which is nothing that a driver may say")
    return said
