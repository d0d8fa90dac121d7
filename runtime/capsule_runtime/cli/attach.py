"""`capsule attach` and `capsule wait`: be there until a run ends, without owning it."""

from __future__ import annotations

from signal import Signals

import anyio
import click

from capsule_runtime.cli.failures import INTERRUPTED, write_stderr
from capsule_runtime.cli.following import make_view, show_rows, ticking
from capsule_runtime.cli.options import format_option, json_option, run_argument, to_seconds
from capsule_runtime.cli.output import write_json
from capsule_runtime.cli.printer import shown
from capsule_runtime.cli.result import exit_status_of_run, result_of
from capsule_runtime.cli.screen import open_screen
from capsule_runtime.cli.signals import exit_status_of_signal
from capsule_runtime.cli.spending import prices_for
from capsule_runtime.cli.watching import watch
from capsule_runtime.core.log import Record
from capsule_runtime.core.outcome import Outcome
from capsule_runtime.runs import open_runs

TIMED_OUT = 124


@click.command("attach", epilog="Example: capsule attach @last")
@run_argument
@format_option
def attach_command(run: str, format: str) -> int:
    """Show a run from its beginning, follow it, and exit as it ends.

    Ctrl-C detaches: the run goes on.
    """
    return anyio.run(_attach, run, format)


@click.command("wait", epilog="Example: capsule wait @last --timeout 10m")
@run_argument
@click.option(
    "--timeout",
    "patience",
    callback=to_seconds,
    metavar="TIME",
    help="Give up after so long (124).",
)
@json_option
def wait_command(run: str, patience: float | None, as_json: bool) -> int:
    """Wait until a run has ended, and exit as it ended."""
    return anyio.run(_wait, run, patience, as_json)


async def _attach(name: str, format: str) -> int:
    status = INTERRUPTED
    async with open_runs() as runs, open_screen() as screen:
        run, view = runs.find(name).id, make_view(format, screen)

        async def show() -> None:
            nonlocal status
            async with ticking(view, screen):
                await show_rows(runs.follow(run), view)
            record = runs.record(run)
            status = exit_status_of_run(record)
            await view.ended(record)
            await screen.drained()

        left = await watch(show, screen)
        if isinstance(left, Signals):
            status = exit_status_of_signal(left)
            view.notice(f"detached; {run} goes on")
    return status


async def _wait(name: str, patience: float | None, as_json: bool) -> int:
    async with open_runs() as runs:
        run = runs.find(name).id
        with anyio.move_on_after(patience):
            record = await runs.wait(run)
            if as_json:
                write_json(result_of(record, runs.out_folder(run), await prices_for(record)))
            else:
                _tell_ending(record)
            return exit_status_of_run(record)
    return TIMED_OUT


def _tell_ending(record: Record) -> None:
    """Say on stderr why the exit status is what it is, where it is not 0."""
    assert record.ended is not None  # it was waited for
    if record.outcome is not Outcome.COMPLETED:
        message = record.final.message if record.final else ""
        write_stderr(shown(f"{record.ended.run} has ended: {record.ended.reason}: {message}\n"))
