"""Many runs under one roof: start them, follow them, end them. The embedding API.

A supervisor owns the runs it starts: only it writes their logs. However it ends, also by SIGKILL,
no process of any of its runs is left alive.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import anyio
import anyio.abc

from capsule_runtime.active_run import ActiveRun
from capsule_runtime.attempt import Attempt
from capsule_runtime.core.index import index_row
from capsule_runtime.core.journal import Append
from capsule_runtime.core.limits import Limits
from capsule_runtime.core.log import Record
from capsule_runtime.core.run import Run
from capsule_runtime.embedding import RunHandle, RunSummary, summary_of
from capsule_runtime.ending import end_all, end_unwanted
from capsule_runtime.errors import HostError, UsageError
from capsule_runtime.heeding import Heeder
from capsule_runtime.host.capsule import Task, plan_launch
from capsule_runtime.host.clock import Clock, SystemClock, new_id
from capsule_runtime.host.control import Doorbell, open_doorbell
from capsule_runtime.host.finishing import finish
from capsule_runtime.host.hub import Hub
from capsule_runtime.host.locks import remove_if_free, try_take
from capsule_runtime.host.process import open_warden
from capsule_runtime.host.rows import ContextBusy, ContextDiffers, ContextRow
from capsule_runtime.host.run_log import RunLog, rows_of
from capsule_runtime.host.shared import Host
from capsule_runtime.host.state import default_state, doorbell, places_of, warden_door, warden_lock
from capsule_runtime.host.store import Store, open_store
from capsule_runtime.known_runs import KnownRuns
from capsule_runtime.logs import Logger, Logs
from capsule_runtime.recovery import recover
from capsule_runtime.request import (
    Ready,
    RunRequest,
    attempt_started,
    check_request,
    created_run,
)
from capsule_runtime.runs import Runs
from capsule_runtime.shelters import Beginnings, Shelters, closed

CLOSE_SECONDS = 6.5
"""How long closing waits for the runs' recorded ends; then it cuts their lifeline."""


class Supervisor:
    """The owner of the runs it starts. `open_supervisor` makes one."""

    def __init__(
        self, store: Store, host: Host, tasks: anyio.abc.TaskGroup, id: str, logs: Logs
    ) -> None:
        self.id = id
        self._store = store
        self._host = host
        self._logs = logs
        self._runs: dict[str, ActiveRun] = {}
        self._shelters = Shelters(tasks)
        self._heeder = Heeder(store, id, self._runs, host.clock, logs)
        self._known = KnownRuns(Runs(store, logs), self._shelters.shelter)
        self._beginnings = Beginnings(self._shelters, end_unwanted)
        self._is_closing = False

    def get(self, run: str) -> RunHandle:
        """Return the run of the state directory whose whole id is *run*, whoever owns it.

        Raises:
            UsageError: E-USE-001, there is none.
        """
        return self._runs.get(run) or self._known.get(run)

    def list(self, *, live_only: bool = False, limit: int = 50) -> tuple[RunSummary, ...]:
        """Return the newest runs of the state directory, newest first, whoever owns them."""
        return tuple(map(summary_of, self._store.runs(limit, live_only)))

    async def start(self, request: RunRequest) -> ActiveRun:
        """Record a run and begin its launch. Errors before that leave nothing behind.

        If this is cancelled there is no run, or it is stopped as an interrupted one. Once this has
        returned the run goes on, whatever becomes of the caller's task, until the supervisor ends.

        Raises:
            UsageError: what is asked for cannot be; E-USE-010, the context is busy.
            ManifestError: the manifest is wrong.
            HarnessError: the driver or the harness's program is not here.
            ContainmentError: the tier cannot be had.
            StoreError: the log cannot be written.
        """
        if self._is_closing:
            raise closed()
        return await self._beginnings.made(partial(self._begin, request))

    async def _begin(self, request: RunRequest) -> ActiveRun:
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
        state = Run(run, context.name)
        log = await self._create(state, ready, context)
        driver, limits = ready.capsule.driver, Limits.of(ready.limits)
        attempt = Attempt(self._host, state, log, driver, limits, self._heeder.heed)
        logs, shelter = self._logs.of(run=run, context=context.name), self._shelters.shelter
        active = ActiveRun(log, context.name, attempt, shelter, places.out, logs)
        self._runs[run] = active
        started = partial(attempt_started, self.id, ready, launch, session)

        async def carry_out() -> None:
            try:
                await active.carry_out(launch, places, started)
            finally:
                del self._runs[run]

        self._shelters.shelter(carry_out)
        return active

    def attend(self, hub: Hub, door: Doorbell) -> None:
        """Begin to hear harnesses, and what others ask. Called once, by `open_supervisor`."""
        self._shelters.shelter(hub.run)
        self._shelters.shelter(partial(self._heeder.serve, door))

    async def close(self) -> None:
        """Stop all runs as one batch, and wait for their recorded ends, within a bound."""
        self._is_closing = True
        await finish(self._close)

    async def _close(self) -> None:
        with anyio.move_on_after(CLOSE_SECONDS):
            await self._beginnings.told()
            await end_all([*self._runs.values()])
        self._shelters.cancel()

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
                observe = self._logs.of(run=index.id, context=context.name).observe
                log = RunLog(self._store, tail, record, context, observe=observe)
                log.published(rows, appends)
                return log


@asynccontextmanager
async def open_supervisor(
    state: Path | None = None, *, clock: Clock | None = None, logger: Logger | None = None
) -> AsyncGenerator[Supervisor]:
    """Open a supervisor on a state directory; at the end of the block all its runs are ended.

    Runs that a dead supervisor left there are ended first. At the end the own runs are told to stop
    as one batch; their trees are empty within seconds, also when the block is cancelled. No signal
    handler is set, and nothing of the process is changed. *logger* is told how things go.

    Raises:
        StoreError: the state directory cannot be used.
    """
    id, clock, logs = new_id("sup"), clock or SystemClock(), Logs(logger)
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
        cleanup.callback(remove_if_free, warden_lock(store.state, id))
        warden = await cleanup.enter_async_context(
            open_warden(str(warden_lock(store.state, id)), str(warden_door(store.state, id)))
        )
        warden.warm()
        door = cleanup.enter_context(open_doorbell(doorbell(store.state, id), store.data_version))
        hub = Hub()
        cleanup.callback(hub.close)
        failures: list[Exception] = []
        async with anyio.create_task_group() as tasks:
            supervisor = Supervisor(store, Host(warden, hub, clock), tasks, id, logs)
            try:
                supervisor.attend(hub, door)
                await recover(store, clock, id, logs)
                yield supervisor
            except Exception as exc:
                failures.append(exc)  # raised behind the group, which would wrap it
            finally:
                await supervisor.close()
        for failure in failures:
            raise failure
