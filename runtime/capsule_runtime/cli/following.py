"""Show a run that this process owns, from its start to its recorded end."""

from __future__ import annotations

import errno
import os
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

import anyio

from capsule_runtime.active_run import ActiveRun
from capsule_runtime.cli.answers import HeldAnswer, StreamedAnswer
from capsule_runtime.cli.output import STDOUT
from capsule_runtime.cli.screen import Screen
from capsule_runtime.cli.signals import Stopper
from capsule_runtime.cli.views import JsonlView, QuietView, View
from capsule_runtime.core.chain import Row
from capsule_runtime.core.outcome import Reason

_TICK_SECONDS = 0.125
STUCK_READER_SECONDS = 1.0
"""How long a reader of stdout may keep us, once we were told to stop and the run has ended."""


def make_view(name: str, screen: Screen) -> View:
    """Return the view for the format *name*."""
    match name:
        case "jsonl":
            return JsonlView(screen)
        case "quiet":
            return QuietView(screen)
        case _:
            from capsule_runtime.cli.text_view import TextView

            streams = os.isatty(STDOUT)
            return TextView(screen, StreamedAnswer(screen) if streams else HeldAnswer(screen))


async def show_rows(rows: AsyncIterator[Row], view: View) -> None:
    """Show every row, to the end."""
    async for row in rows:
        await view.show(row)


@asynccontextmanager
async def ticking(view: View, screen: Screen) -> AsyncGenerator[None]:
    """Let *view* show that time goes by, where *screen* can show it."""

    async def tick() -> None:
        while True:
            await anyio.sleep(_TICK_SECONDS)
            view.tick()

    async with anyio.create_task_group() as tasks:
        if screen.draws_status:
            tasks.start_soon(tick)
        yield
        tasks.cancel_scope.cancel()


async def show_own_run(run: ActiveRun, view: View, screen: Screen, stopper: Stopper) -> None:
    """Show *run* to its end.

    A reader of stdout that is stuck never stops the run. It keeps this process from leaving, until
    somebody tells us to stop.
    """
    async with anyio.create_task_group() as tasks, ticking(view, screen):
        tasks.start_soon(_stop_when_unread, screen, stopper)
        with anyio.CancelScope() as showing:
            tasks.start_soon(_leave_stuck_reader, run, stopper, showing)
            await show_rows(run.follow(), view)
            await view.ended(await run.record())
            await screen.drained()
        tasks.cancel_scope.cancel()


async def _stop_when_unread(screen: Screen, stopper: Stopper) -> None:
    """Interrupt the run when what it says cannot be written: nobody wants it any more."""
    failure = await screen.out.failed()
    match failure.errno:
        case errno.EPIPE:
            await stopper.stop(Reason.INTERRUPTED, "nobody reads stdout any more")
        case errno.EIO:
            await stopper.stop(Reason.HANG_UP, "the terminal is gone")
        case _:
            message = f"stdout cannot be written: {failure.strerror}"
            await stopper.stop(Reason.INTERRUPTED, message)


async def _leave_stuck_reader(run: ActiveRun, stopper: Stopper, showing: anyio.CancelScope) -> None:
    await stopper.asked.wait()
    await run.wait()
    await anyio.sleep(STUCK_READER_SECONDS)
    showing.cancel()
