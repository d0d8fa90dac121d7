"""Many runs under one roof: start them, follow them, end them. The embedding API.

A supervisor owns the runs it starts: only it writes their logs. However it ends, also by SIGKILL,
no process of any of its runs is left alive.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.abc
from msgspec.structs import replace

from capsule_runtime.active_run import ActiveRun
from capsule_runtime.announcing import attempt_started, new_run, task_of
from capsule_runtime.attempt import Attempt
from capsule_runtime.containing import Shell, walls_of
from capsule_runtime.core.ceilings import DayCeilings
from capsule_runtime.core.limits import Limits
from capsule_runtime.core.prices import PriceTable
from capsule_runtime.embedding import RunHandle, RunSummary, summary_of
from capsule_runtime.ending import end_all, end_unwanted
from capsule_runtime.errors import HostError
from capsule_runtime.heeding import Heeder
from capsule_runtime.host.capsule import plan_launch
from capsule_runtime.host.clock import Clock, SystemClock, new_id
from capsule_runtime.host.control import Doorbell, open_doorbell
from capsule_runtime.host.day_account import DayAccount
from capsule_runtime.host.finishing import finish
from capsule_runtime.host.handing import Handing
from capsule_runtime.host.hub import Hub
from capsule_runtime.host.leftovers import remove_leftovers
from capsule_runtime.host.locks import remove_if_free, try_take
from capsule_runtime.host.machine import find_machine
from capsule_runtime.host.process import open_warden
from capsule_runtime.host.shared import Host, Outside, watch_of
from capsule_runtime.host.showing import remove_copies, show
from capsule_runtime.host.state import (
    default_state,
    doorbell,
    places_of,
    private_folders,
    run_folder,
    warden_door,
    warden_lock,
)
from capsule_runtime.host.store import open_store
from capsule_runtime.known_runs import KnownRuns
from capsule_runtime.launching import Launching
from capsule_runtime.logs import Logger, Logs
from capsule_runtime.pricing import PriceBook
from capsule_runtime.recovery import Heir, recover
from capsule_runtime.redacting import redactor_of
from capsule_runtime.registrar import Registrar
from capsule_runtime.request import Ready, RunRequest
from capsule_runtime.runs import Runs
from capsule_runtime.settings import day_ceilings, price_book
from capsule_runtime.shelters import Beginnings, Shelters, closed
from capsule_runtime.working import workroom_for

if TYPE_CHECKING:
    from capsule_runtime.gateway_plan import GatewayPlan

CLOSE_SECONDS = 6.5
"""How long closing waits for the runs' recorded ends; then it cuts their lifeline."""


class Supervisor:
    """The owner of the runs it starts. `open_supervisor` makes one."""

    def __init__(self, registrar: Registrar, tasks: anyio.abc.TaskGroup) -> None:
        store, host, logs = registrar.store, registrar.host, registrar.logs
        self.id = registrar.owner
        self._registrar = registrar
        self._runs: dict[str, ActiveRun] = {}
        self._shelters = Shelters(tasks)
        self._heeder = Heeder(store, self.id, self._runs, host.clock, logs)
        self._known = KnownRuns(Runs(store, registrar.prices, logs), self._shelters.shelter)
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
        return tuple(map(summary_of, self._registrar.store.runs(limit, live_only)))

    async def start(self, request: RunRequest) -> ActiveRun:
        """Record a run and begin its launch. Errors before that leave nothing behind.

        If this is cancelled there is no run, or it is stopped as an interrupted one. Once this has
        returned the run goes on, whatever becomes of the caller's task, until the supervisor ends.

        Raises:
            UsageError: what is asked for cannot be; E-USE-010, the context is busy.
            SpendError: a ceiling, of the run or of the day, is used up.
            ManifestError: the manifest is wrong.
            HarnessError: the driver or the harness's program is not here.
            ContainmentError: the tier cannot be had.
            TrustError: the capsule asks for what nobody granted.
            StoreError: the log cannot be written.
        """
        if self._is_closing:
            raise closed()
        return await self._beginnings.made(partial(self._begin, request))

    async def _begin(self, request: RunRequest) -> ActiveRun:
        ready, prices = await self._registrar.check(request)
        gateway = await self._registrar.gateway_for(ready, prices)
        shell, run = ready.shell.leased(), new_id("run")
        try:
            active = await self._prepared(run, ready, shell, prices, gateway)
        except BaseException:
            _close(gateway)
            remove_copies(run_folder(self._registrar.store.state, run))
            shell.release()
            raise

        async def carry_out() -> None:
            try:
                await active.carry_out()
            finally:
                del self._runs[active.id]
                shell.release(is_kept=active.may_have_left)
                _close(gateway)

        self._runs[active.id] = active
        self._shelters.shelter(carry_out)
        return active

    async def _prepared(
        self,
        run: str,
        ready: Ready,
        shell: Shell,
        prices: PriceTable | None,
        gateway: GatewayPlan | None,
    ) -> ActiveRun:
        """Record the run, and return it as it may begin."""
        context, capsule = self._registrar.context_for(ready), ready.capsule
        state_folder = self._registrar.store.state
        places = places_of(state_folder, run, context.uuid, ready.workdir, ready.workdir_mode)
        context = context.at(shell.setting(places))
        if (user := shell.walker) is not None:
            capsule, places = await anyio.to_thread.run_sync(
                show, capsule, places, state_folder, user
            )
        session = context.session if ready.capsule.described.resumes else None
        redactor = redactor_of(ready)
        told = gateway.environment if gateway is not None else {}
        task = task_of(run, ready, context, shell.environment, told, redactor)
        launch = plan_launch(capsule, shell.seen(places), task)
        walls = walls_of(
            capsule,
            places,
            launch,
            ready.limits,
            state=state_folder,
            grants=ready.grants,
            shell=shell,
        )
        account = gateway.own_account if gateway is not None else None
        state = new_run(run, ready, context, prices, account, redactor)
        log = await self._registrar.create(state, ready, context, gateway)
        launching = Launching(
            replace(launch, walls=walls),
            places,
            ready.capsule.driver,
            Limits.of(ready.limits),
            partial(attempt_started, self.id, ready, launch, session),
            workroom_for(places, state_folder, ready.capsule.manifest, shell.owner),
            Handing(private_folders(places), shell.owner),
            ready.notes,
            redactor,
            gateway,
        )
        attempt = Attempt(self._registrar.host, state, log, launching, self._heeder.heed)
        logs = self._registrar.logs.of(run=run, context=context.name)
        shelter = self._shelters.shelter
        return ActiveRun(log, context.name, attempt, shelter, places.out, logs, ready.notes)

    def attend(self, hub: Hub, door: Doorbell) -> None:
        """Begin to hear harnesses, and what others ask. Called once, by `open_supervisor`."""
        self._shelters.shelter(hub.run)
        self._shelters.shelter(self._registrar.host.resources.run)
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


def _close(gateway: GatewayPlan | None) -> None:
    if gateway is not None:
        gateway.close()


@asynccontextmanager
async def open_supervisor(
    state: Path | str | None = None,
    *,
    clock: Clock | None = None,
    logger: Logger | None = None,
    day: DayCeilings | None = None,
    prices: PriceBook | None = None,
) -> AsyncGenerator[Supervisor]:
    """Open a supervisor on a state directory; at the end of the block all its runs are ended.

    Runs that a dead supervisor left there are ended first. At the end the own runs are told to stop
    as one batch; their trees are empty within seconds, also when the block is cancelled. No signal
    handler is set, and nothing of the process is changed. *logger* is told how things go. *day*
    bounds what all supervisors of the directory spend in one UTC day, *prices* are what things
    cost; left out, both are as the environment and config.toml have them.

    Raises:
        StoreError: the state directory cannot be used.
    """
    id, clock, logs = new_id("sup"), clock or SystemClock(), Logs(logger)
    state = None if state is None else Path(state)
    day = day_ceilings() if day is None else day
    prices = prices or price_book(state)
    async with AsyncExitStack() as cleanup:
        store = open_store(state or default_state(), owner=id)
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
        remove_leftovers(find_machine().cgroups.places)
        door = cleanup.enter_context(
            open_doorbell(doorbell(store.state, id), store.data_version, store.write_stamp)
        )
        hub = Hub(store.together)
        cleanup.callback(hub.close)
        failures: list[BaseException] = []
        outside = Outside()
        cleanup.push_async_callback(outside.close)
        async with anyio.create_task_group() as tasks:
            account = DayAccount(store, id, clock, day) if day else None
            host = Host(warden, hub, clock, watch_of(hub), outside, account)
            supervisor = Supervisor(Registrar(store, host, id, prices, logs), tasks)
            try:
                supervisor.attend(hub, door)
                await recover(Heir(store, clock, id, prices, logs))
                yield supervisor
            except (Exception, KeyboardInterrupt, SystemExit) as exc:
                failures.append(exc)  # raised behind the group, which would wrap it
            finally:
                await supervisor.close()
        for failure in failures:
            raise failure
