"""Own a run: start it, show it or not, stop it on signals, and write down what became of it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import anyio

from capsule_runtime.active_run import ActiveRun
from capsule_runtime.cli.failures import write_stderr
from capsule_runtime.cli.following import make_view, show_own_run
from capsule_runtime.cli.log_lines import JsonRows, LogWishes
from capsule_runtime.cli.printer import Shown
from capsule_runtime.cli.reader import reader_gone
from capsule_runtime.cli.result import (
    exit_status_of_run,
    refusals_kept,
    result_of,
    write_result,
)
from capsule_runtime.cli.screen import open_screen
from capsule_runtime.cli.signals import Stopper, exit_status_of_signal, heeded_signals
from capsule_runtime.cli.spending import prices_for
from capsule_runtime.cli.views import SilentView
from capsule_runtime.core.log import Record
from capsule_runtime.errors import UsageError
from capsule_runtime.logs import Logger
from capsule_runtime.request import RunRequest
from capsule_runtime.runs import open_runs
from capsule_runtime.supervisor import Supervisor, open_supervisor

CONTEXT_BUSY = "E-USE-010"

_MOST_LIVE_RUNS = 100_000
_LOOK_AGAIN_SECONDS = 0.5

Attend = Callable[[ActiveRun, Stopper], Awaitable[None]]
"""What is done while a run goes on; returns at its end."""


class Caller(NamedTuple):
    """The process that wants a run which it does not own."""

    fd: int
    """A pipe that it reads until the run is recorded."""
    tell: Callable[[ActiveRun, Path], None]
    """Tell it of a run and its folder; closes the pipe."""


class Wishes(NamedTuple):
    """How the caller wants a run to be shown and recorded."""

    format: str
    wait: bool = False
    """Whether to wait while another run is in the context."""
    result: Path | None = None
    log: LogWishes | None = None
    """What to tell of how things go; by default nothing."""

    @property
    def rows(self) -> JsonRows | None:
        """Return what renders all that is said on stderr, if that is to be JSON alone."""
        in_json = self.log is not None and self.log.format == "json"
        return JsonRows() if in_json and self.format != "text" else None

    def logger(self, write: Callable[[Shown], None]) -> Logger | None:
        """Return the logger that was wished for, which gives its rows to *write*."""
        return self.log.logger(write) if self.log else None


def run_here(request: RunRequest, wishes: Wishes) -> int:
    """Run *request* to its end, shown on stdout and stderr; return the exit status.

    Raises:
        CapsuleError: there is no run, or its log was lost.
    """
    return anyio.run(_run_here, request, wishes)


def run_unseen(request: RunRequest, wishes: Wishes, caller: Caller) -> int:
    """Run *request* to its end and show nothing; tell *caller* once it is on record.

    A caller that leaves before ends the waiting for a context, but never a run.

    Raises:
        CapsuleError: there is no run, or its log was lost.
    """
    return anyio.run(_run_unseen, request, wishes, caller)


async def _run_here(request: RunRequest, wishes: Wishes) -> int:
    # Signals are heeded until the screen is closed: a late one must not break off its closing.
    with heeded_signals() as signals:
        async with open_screen(wishes.rows) as screen:
            view = make_view(wishes.format, screen)

            async def show(run: ActiveRun, stopper: Stopper) -> None:
                if wishes.format != "text":  # which shows the notes that are in the log
                    for note in run.notes:
                        view.notice(f"warning: {note}")
                await show_own_run(run, view, screen, stopper)

            logger = wishes.logger(screen.row)
            return await _own(request, wishes, Stopper(view, signals), show, logger)


async def _run_unseen(request: RunRequest, wishes: Wishes, caller: Caller) -> int:
    with heeded_signals() as signals:
        stopper = Stopper(SilentView(), signals)
        async with _abandoned_with(caller, stopper) as watching:

            async def wait(run: ActiveRun, _stopper: Stopper) -> None:
                folder = (await _out_folder(run.id)).parent
                watching.cancel()
                caller.tell(run, folder)
                await run.wait()

            return await _own(request, wishes, stopper, wait, wishes.logger(write_stderr))


@asynccontextmanager
async def _abandoned_with(caller: Caller, stopper: Stopper) -> AsyncGenerator[anyio.CancelScope]:
    """Abandon *stopper* once *caller* is gone, until the scope is cancelled."""
    watching = anyio.CancelScope()

    async def watch() -> None:
        with watching:
            await reader_gone(caller.fd)
            stopper.abandon()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch)
        yield watching
        watching.cancel()


async def _own(
    request: RunRequest, wishes: Wishes, stopper: Stopper, attend: Attend, logger: Logger | None
) -> int:
    """Heed signals while the run is started and attended to; return the exit status."""
    record: Record | None = None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stopper.watch)
        async with AsyncExitStack() as stack:
            with refusals_kept(wishes.result):
                supervisor = await stack.enter_async_context(open_supervisor(logger=logger))
                run = await _start(supervisor, request, stopper, wait=wishes.wait)
            if run is not None:
                await _attend(run, wishes, stopper, attend)
                record = await run.record()
        tasks.cancel_scope.cancel()
    if record is not None:
        return exit_status_of_run(record)
    assert stopper.first is not None  # nothing else makes us give up
    return exit_status_of_signal(stopper.first)


async def _attend(run: ActiveRun, wishes: Wishes, stopper: Stopper, attend: Attend) -> None:
    await stopper.take(run)
    async with anyio.create_task_group() as tasks:
        if wishes.result is not None:
            tasks.start_soon(_keep_result, run, wishes.result)
        await attend(run, stopper)


async def _start(
    supervisor: Supervisor, request: RunRequest, stopper: Stopper, *, wait: bool
) -> ActiveRun | None:
    """Start the run, if need be once its context is free; None when a signal came first."""
    while stopper.first is None:
        try:
            return await supervisor.start(request)
        except UsageError as error:
            if not wait or error.code != CONTEXT_BUSY:
                raise
        with stopper.gives_up():
            await _context_free(request.context, stopper)
    return None


async def _context_free(context: str | None, stopper: Stopper) -> None:
    """Wait until no run is in *context*, as far as can be seen from here."""
    async with open_runs() as runs:
        live = runs.recent(live_only=True, limit=_MOST_LIVE_RUNS)
        for row in live:
            if row.context == context:
                stopper.notice(f"waiting for {row.id}, which is in the context {context!r}")
                await runs.wait(row.id)
                return
    # It was busy a moment ago, so whoever was in it is just leaving.
    await anyio.sleep(_LOOK_AGAIN_SECONDS)


async def _keep_result(run: ActiveRun, path: Path) -> None:
    record = await run.record()
    folder, prices = await _out_folder(run.id), await prices_for(record)
    write_result(path, result_of(record, folder, prices))


async def _out_folder(run: str) -> Path:
    async with open_runs() as runs:
        return runs.out_folder(run)
