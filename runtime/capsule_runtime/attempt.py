"""One attempt: read, decide, act. The only loop over a harness.

`Run` decides; this module performs what it returns, in order. Entries are committed before the act
they announce, and before anything later is decided.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from signal import SIGKILL
from typing import TYPE_CHECKING

import anyio
import anyio.abc

from capsule_runtime.acting import Hands
from capsule_runtime.burying import NOT_PROVED, buried, bury
from capsule_runtime.core.actions import Burial
from capsule_runtime.core.facts import Contained
from capsule_runtime.core.journal import Moment
from capsule_runtime.core.outcome import Reason
from capsule_runtime.core.run import Run
from capsule_runtime.core.sandbox_plan import WallPlan
from capsule_runtime.core.states import State
from capsule_runtime.core.units import show_size
from capsule_runtime.deadline_watch import DeadlineWatch
from capsule_runtime.deciding import Decider
from capsule_runtime.errors import HarnessError, HostError
from capsule_runtime.guarded import GuardedDriver
from capsule_runtime.host.capsule import Launch
from capsule_runtime.host.homes import collect_files
from capsule_runtime.host.process import Spawn, Tree
from capsule_runtime.host.resource_watch import RunResources
from capsule_runtime.host.run_log import RunLog
from capsule_runtime.host.shared import Host
from capsule_runtime.host.stdio import WIDE_PIPE_BYTES, StderrLog, Stdio, open_stdio
from capsule_runtime.host.waiting import Once
from capsule_runtime.launching import Launching
from capsule_runtime.listening import Listener
from capsule_runtime.messages import Exit, Refused
from capsule_runtime.working import Make, Working

if TYPE_CHECKING:
    from capsule_runtime.doorkeeping import Doorkeeper

DRAIN_SECONDS = 10.0
"""How long output may go on once no process of the run is left to write any."""


class Attempt:
    """Carry out one launch of a harness, from its start to its one recorded end."""

    def __init__(
        self,
        host: Host,
        run: Run,
        log: RunLog,
        launching: Launching,
        heed: Callable[[], Awaitable[object]],
    ) -> None:
        """*heed* does what others have asked of the run so far."""
        self._host = host
        self._run = run
        self._log = log
        # Let go of once the harness runs, which may be for days.
        self._launching: Launching | None = launching
        self._driver, self._limits = GuardedDriver(launching.driver), launching.limits
        reserve = partial(host.day.reserve, log.run) if host.day is not None else None
        self._hands = Hands(self._driver)
        self._decider = Decider(run, log, host.clock, self._hands.act, reserve)
        self._heed = heed
        self._working = Working(launching.workroom, launching.handing, self._record, self._note)
        self._watch = DeadlineWatch(run, self._decider, host.clock, self._limits, self.ask_stop)
        self._hands.watch = self._watch
        self._resources: RunResources | None = None
        self._doorkeeper: Doorkeeper | None = None
        self._places: tuple[str, ...] = ()
        self._gateway, self._reserve = launching.gateway, reserve
        self._begun = Once()

    async def carry_out(self) -> None:
        """Launch, follow to the end, and write the one final status. Called once.

        Raises:
            StoreError: the log cannot be written. The tree is empty all the same.
        """
        launching, self._launching = self._launching, None
        assert launching is not None, "an attempt is carried out once"
        places, collected = launching.places, launching.launch.plan.collect
        await self._announce(launching)
        self._hands.out = places.out
        self._places = tuple(map(str, (places.workdir, places.home, places.tmp, places.out)))
        try:
            launching.write_places()
            await launching.hand_over()
            await self._working.prepare(self.ask_stop)
            wide = WIDE_PIPE_BYTES if self._driver.describe().loses_tail else None
            if self._driver.fault:
                raise HarnessError("E-HAR-005", self._driver.fault)
            with (
                open_stdio(self._host.hub, places.run, wide_bytes=wide) as stdio,
                StderrLog(places.run / "stderr.log", launching.redactor) as stderr,
            ):
                tree = await self._spawn(launching.launch, stdio)
                del launching
                self._begun.set()
                if tree is not None:
                    burial = await self._follow(tree, stdio, stderr)
                    await self._working.collect(is_buried=burial.left == 0)
                    files = collect_files(places.home, collected)
                    await self._end(tree, burial, stderr, files)
                    return
        except HarnessError as exc:
            await self._not_run(Reason.LAUNCH_FAILED, exc.message)
        except HostError as exc:
            await self._not_run(Reason.HOST_FAILED, exc.message)
        else:
            await self._not_run(Reason.INTERRUPTED, "")
        finally:
            self._begun.set()
            if self._doorkeeper is not None:
                self._doorkeeper.close()

    async def _announce(self, launching: Launching) -> None:
        await self._record(launching.started)
        for note in launching.notes:
            await self._note(note)

    async def tidy(self) -> None:
        """Remove what nobody needs any more, once the end is on record; it may take a while."""
        if self._run.state is State.ENDED:
            await self._working.discard()

    async def ask_stop(
        self, reason: Reason, message: str = "", *, grace: float | None = None
    ) -> None:
        """Ask the run to stop. The first reason on record decides the outcome.

        *grace* shortens what the harness is given to leave, in seconds.
        """
        self._working.stop()
        if grace is not None:
            self._watch.shorten_grace(grace)
        await self._decider.decide(lambda moment: self._run.ask_stop(reason, message, moment))

    async def steer(self, id: str, text: str) -> Refused | None:
        """Hand *text* to the harness once it works; return why not, if it was not.

        Raises:
            StoreError: the log cannot be written. Then it was not.
        """
        await self._begun.wait()
        async with self._decider.turn:
            line = self._run.deafness or self._driver.steer(id, text)
            line = line or Refused("E-USE-005", "the harness takes no words while it works")
            moment = self._host.clock.moment()
            await self._decider.perform(self._run.steer(id, text, line, moment))
        await self._log.settled()
        if self._driver.fault:
            await self.ask_stop(Reason.DRIVER_FAILED, self._driver.fault)
        return line if isinstance(line, Refused) else None

    async def _spawn(self, launch: Launch, stdio: Stdio) -> Tree | None:
        """Start the harness, unless somebody asked to stop before it was."""
        async with self._decider.turn:
            if self._run.state is not State.STARTING:
                return None
            spawn = Spawn(self._log.run, launch.argv, launch.env, launch.cwd, launch.walls)
            child = stdio.child
            tree = await self._host.warden.spawn(spawn, child.stdin, child.stdout, child.stderr)
            child.close()
            self._hands.hold(tree, stdio)
            moment = self._host.clock.moment()
            self._watch.started(moment.now)
            stdio.stdin.send(launch.plan.stdin)
            if not launch.plan.keep_stdin:
                stdio.stdin.end()
            try:
                if launch.walls is not None:
                    await self._contained(launch.walls, tree, moment)
                await self._decider.perform(self._run.launched(tree.pid, moment))
            except BaseException:
                await bury(tree, self._decider.trouble)
                raise
            return tree

    async def _contained(self, walls: WallPlan, tree: Tree, moment: Moment) -> None:
        """Record the walls that *tree* is behind, serve its doors, and watch what it uses."""
        run = self._run
        if tree.handed or self._gateway is not None:
            from capsule_runtime.doorkeeping import open_doors, open_gateway  # a tenth of us

            host, decider = self._host, self._decider
            gateway = open_gateway(self._gateway, host, run, decider, self.ask_stop, self._reserve)
            self._doorkeeper = open_doors(host, run, decider, walls, tree.handed, gateway)
        self._resources = RunResources(
            walls.limits, tree, self._places, lambda: run.position, self.ask_stop
        )
        contained = partial(Contained, containment=walls.report)
        await self._decider.perform(self._run.record(contained, moment))

    async def _follow(self, tree: Tree, stdio: Stdio, stderr: StderrLog) -> Burial:
        """Read until no process is left that could write; whatever happens, the tree is buried."""
        burial = NOT_PROVED
        try:
            async with anyio.create_task_group() as tasks:
                stdio.stdin.serve(tasks.start_soon)
                tasks.start_soon(self._watch.run)
                if self._doorkeeper is not None:
                    tasks.start_soon(self._doorkeeper.serve)
                if self._resources is not None:
                    self._host.resources.add(self._resources, tasks.start_soon)
                drained = self._read_outputs(tasks, stdio, stderr)
                self._log.when_lost(tasks.cancel_scope.cancel)
                burial = await buried(tree, self._decider.trouble)
                stdio.stdout.writer_gone()
                with anyio.move_on_after(DRAIN_SECONDS):
                    await drained.wait()
                # What was decided is also done: nobody is cancelled between the two.
                async with self._decider.turn:
                    tasks.cancel_scope.cancel()
            if self._doorkeeper is not None:
                await self._doorkeeper.finish()
            self._log.check()
        except BaseException:
            await bury(tree, self._decider.trouble)
            raise
        finally:
            stdio.stdin.close()
            if self._resources is not None:
                self._host.resources.drop(self._resources)
        return burial

    def _read_outputs(self, tasks: anyio.abc.TaskGroup, stdio: Stdio, log: StderrLog) -> Once:
        """Begin to read both outputs, and return what is set at the end of both."""
        listener = Listener(
            self._run,
            self._decider,
            self._driver,
            self._host.clock,
            self._limits,
            heard=self._watch.heard,
            send=stdio.stdin.send,
            ask_stop=self.ask_stop,
        )
        # A harness that closed its output can tell us nothing more: it gets its grace to leave.
        return listener.begin(tasks, stdio, log, self._watch.give_grace)

    async def _end(
        self, tree: Tree, burial: Burial, stderr: StderrLog, files: dict[str, bytes]
    ) -> None:
        exited = await tree.exited()
        async with self._decider.turn:
            await self._decider.note_troubles()
        exit = Exit(exited.code, exited.signal, stderr.tail, files)
        if stderr.dropped_bytes:
            await self._note(f"{show_size(stderr.dropped_bytes)} of stderr were dropped")
        if unread := self._hands.unread_bytes:
            await self._note(f"{show_size(unread)} for the harness were dropped: it does not read")
        for passed in self._resources.passed_at_end(exit.signal) if self._resources else ():
            await self.ask_stop(passed.reason, passed.message)
        if exit.signal == SIGKILL:
            await self._heed()  # whoever asked for the kill may have gone round us to the warden
        words = () if self._run.has_terminal else self._driver.ended(exit)
        if self._driver.fault:
            await self.ask_stop(Reason.DRIVER_FAILED, self._driver.fault)
        await self._decider.decide(lambda moment: self._run.end(exit, burial, words, moment))

    async def _record(self, make: Make) -> None:
        await self._decider.decide(lambda moment: self._run.record(make, moment))

    async def _note(self, text: str) -> None:
        await self._decider.decide(lambda moment: self._run.note(text, moment))

    async def _not_run(self, reason: Reason, message: str) -> None:
        """Write the end of a run whose harness never started."""
        await self._working.put_away()
        await self._decider.decide(lambda moment: self._run.fail(reason, message, moment))
