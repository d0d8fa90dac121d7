"""Many runs under one roof: start them, follow them, end them. The embedding API.

A supervisor owns the runs it starts: only it writes their logs. However it ends, also by SIGKILL,
no process of any of its runs is left alive.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import anyio
import anyio.abc

from capsule_runtime.active_run import ActiveRun, Work
from capsule_runtime.attempt import Attempt
from capsule_runtime.containing import walls_of
from capsule_runtime.core.grants import Grants
from capsule_runtime.core.index import index_row
from capsule_runtime.core.journal import Append
from capsule_runtime.core.limits import Limits
from capsule_runtime.core.log import Record
from capsule_runtime.core.outcome import Reason
from capsule_runtime.core.run import Run
from capsule_runtime.errors import HostError, StoreError, UsageError
from capsule_runtime.host.capsule import Task, plan_launch
from capsule_runtime.host.clock import Clock, SystemClock, new_id
from capsule_runtime.host.control import Doorbell, open_doorbell
from capsule_runtime.host.hub import Hub
from capsule_runtime.host.leftovers import remove_leftovers
from capsule_runtime.host.locks import try_take
from capsule_runtime.host.machine import find_machine
from capsule_runtime.host.process import open_warden
from capsule_runtime.host.rows import ContextBusy, ContextDiffers, ContextRow
from capsule_runtime.host.run_log import RunLog, rows_of
from capsule_runtime.host.shared import Host
from capsule_runtime.host.state import default_state, doorbell, places_of, warden_door, warden_lock
from capsule_runtime.host.store import Store, open_store
from capsule_runtime.recovery import recover
from capsule_runtime.request import (
    Ready,
    RunRequest,
    attempt_started,
    check_request,
    created_run,
)

URGENT_GRACE_SECONDS = 4.0
"""The grace when the supervisor itself is told to stop: a CI runner waits 7.5 s in all."""
STOP_REASONS = frozenset({Reason.INTERRUPTED, Reason.KILLED, Reason.HANG_UP, Reason.TERMINATED})
"""What other processes may ask a run to stop for."""
CLOSE_SECONDS = 6.5
"""How long closing waits for the runs' recorded ends; then it cuts their lifeline."""


class Supervisor:
    """The owner of the runs it starts. `open_supervisor` makes one."""

    def __init__(self, store: Store, host: Host, tasks: anyio.abc.TaskGroup, id: str) -> None:
        self.id = id
        self._store = store
        self._host = host
        self._tasks = tasks
        self._runs: dict[str, ActiveRun] = {}
        self._shelters: set[anyio.CancelScope] = set()
        # A request that one task has taken is done before another finds nothing left to take.
        self._heeding = anyio.Lock()

    async def start(self, request: RunRequest) -> ActiveRun:
        """Record a run and begin its launch. Errors before that leave nothing behind.

        Raises:
            UsageError: what is asked for cannot be; E-USE-010, the context is busy.
            ManifestError: the manifest is wrong.
            HarnessError: the driver or the harness's program is not here.
            ContainmentError: the tier cannot be had.
            StoreError: the log cannot be written.
        """
        ready = check_request(request)
        run, context = new_id("run"), self._context_for(ready)
        places = places_of(self._store.state, run, context.uuid, ready.workdir)
        session = context.session if ready.capsule.driver.describe().resumes else None
        task = Task(
            run=run,
            context=context.name,
            message=request.message,
            args=request.args,
            env=request.env,
            model=request.model,
            session=session,
            memory=context.memory,
            limits=ready.limits,
        )
        launch = plan_launch(ready.capsule, places, task)
        walls = walls_of(
            ready.capsule, places, launch, ready.limits, state=self._store.state, grants=Grants()
        )
        launch = replace(launch, walls=walls)
        state = Run(run, context.name)
        log = await self._create(state, ready, context)
        driver, limits = ready.capsule.driver, Limits.of(ready.limits)
        attempt = Attempt(self._host, state, log, driver, limits, self.heed_requests)
        active = self._runs[run] = ActiveRun(log, context.name, attempt, self.shelter)
        started = partial(attempt_started, self.id, ready, launch, session)

        async def carry_out() -> None:
            try:
                await active.carry_out(launch, places, started)
            finally:
                del self._runs[run]

        self.shelter(carry_out)
        return active

    def shelter(self, work: Work) -> None:
        """Begin *work* out of reach of the caller's cancellation; `close` ends it."""
        # Known from now on: `close` may come before the task has run for the first time.
        shelter = anyio.CancelScope(shield=True)
        self._shelters.add(shelter)
        self._tasks.start_soon(self._sheltered, work, shelter)

    async def serve_requests(self, door: Doorbell) -> None:
        """Do what other processes ask of our runs, for ever."""
        while True:
            await door.rung()
            await self.heed_requests()

    async def heed_requests(self) -> None:
        """Do what other processes have asked of our runs so far."""
        async with self._heeding, anyio.create_task_group() as stops:
            # Whoever asked looks whether it was taken, and is told by `Runs.ask` if it was not.
            with suppress(StoreError):
                at = self._host.clock.moment().at
                for request in await self._store.take_requests(self.id, at):
                    active = self._runs.get(request.run)
                    if active and request.verb in STOP_REASONS:
                        stops.start_soon(_stop, active, Reason(request.verb))

    async def close(self) -> None:
        """Stop all runs as one batch, and wait for their recorded ends, within a bound."""
        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(CLOSE_SECONDS):
                async with anyio.create_task_group() as ends:
                    for active in list(self._runs.values()):
                        ends.start_soon(_end, active)
            for shelter in list(self._shelters):
                shelter.cancel()

    async def _sheltered(self, work: Work, shelter: anyio.CancelScope) -> None:
        try:
            with shelter:
                await work()
        finally:
            self._shelters.discard(shelter)

    def _context_for(self, ready: Ready) -> ContextRow:
        name, driver = ready.request.context, ready.capsule.manifest.harness.driver
        known = self._store.context(name) if name else None
        if known is not None:
            return replace(known, driver=driver)  # the store refuses it if that is another
        return ContextRow(
            name=name or new_id("ctx"),
            uuid=new_id("ctx"),
            driver=driver,
            created_at=self._host.clock.moment().at,
        )

    async def _create(self, state: Run, ready: Ready, context: ContextRow) -> RunLog:
        """Write the run's first entry: from here on it exists."""
        created = partial(created_run, self.id, ready, context)
        actions = state.record(created, self._host.clock.moment())
        appends = [action for action in actions if isinstance(action, Append)]
        record = Record()
        for append in appends:
            for entry in append.entries:
                record.apply_entry(entry)
        index = index_row(record)
        assert index is not None
        rows = rows_of(appends)
        match await self._store.create_run(index, rows, context):
            case ContextBusy(other):
                raise UsageError(
                    "E-USE-010",
                    f"context {context.name!r} is busy with {other}",
                    "Wait for it with --wait, interrupt it, or leave --context out.",
                )
            case ContextDiffers(found):
                raise UsageError(
                    "E-USE-013",
                    f"context {context.name!r} belongs to the driver {found.driver!r}",
                    "A context keeps its driver; take another context.",
                )
            case tail:
                log = RunLog(self._store, tail, record, context)
                log.feed.publish(rows)
                return log


@asynccontextmanager
async def open_supervisor(
    state: Path | None = None, *, clock: Clock | None = None
) -> AsyncGenerator[Supervisor]:
    """Open a supervisor on a state directory; at the end of the block all its runs are ended.

    Runs that a dead supervisor left there are ended first. No signal handler is set.

    Raises:
        StoreError: the state directory cannot be used.
    """
    id, clock = new_id("sup"), clock or SystemClock()
    async with AsyncExitStack() as cleanup:
        store = open_store(state or default_state())
        async with AsyncExitStack() as cleanup_on_failure:
            cleanup_on_failure.push_async_exit(store)
            lock = try_take(store.owner_lock(id))
            if lock is None:
                raise HostError("E-HOST-005", f"somebody holds the lock of the new supervisor {id}")
            cleanup.callback(lock.release)
            cleanup.push_async_exit(store)
            cleanup_on_failure.pop_all()
        cleanup.callback(_remove_if_free, warden_lock(store.state, id))
        warden = await cleanup.enter_async_context(
            open_warden(str(warden_lock(store.state, id)), str(warden_door(store.state, id)))
        )
        warden.warm()
        remove_leftovers(find_machine().cgroups.places)
        door = cleanup.enter_context(open_doorbell(doorbell(store.state, id), store.data_version))
        hub = Hub()
        cleanup.callback(hub.close)
        failures: list[Exception] = []
        async with anyio.create_task_group() as tasks:
            supervisor = Supervisor(store, Host(warden, hub, clock), tasks, id)
            try:
                supervisor.shelter(hub.run)
                supervisor.shelter(partial(supervisor.serve_requests, door))
                await recover(store, clock, id)
                yield supervisor
            except Exception as exc:
                failures.append(exc)  # raised behind the group, which would wrap it
            finally:
                await supervisor.close()
        for failure in failures:
            raise failure


def _remove_if_free(path: Path) -> None:
    """Remove the lock file of a warden, unless something of it still holds the lock."""
    # The only way to know is to take it; a disk that has no room for it has none to remove.
    with suppress(StoreError):
        if (lock := try_take(path)) is not None:
            lock.release()


async def _stop(active: ActiveRun, reason: Reason) -> None:
    # A log that cannot be written ends its run; whoever waits for the run hears of it.
    with suppress(StoreError):
        await active.stop(reason)


async def _end(active: ActiveRun) -> None:
    with suppress(StoreError):  # as above
        await active.stop(
            Reason.TERMINATED, "the supervisor was closed", grace=URGENT_GRACE_SECONDS
        )
    await active.over()
