"""`capsule interrupt` and `capsule kill`: end a run that another process owns."""

from __future__ import annotations

import anyio
import click

from capsule_runtime.cli.failures import write_stderr
from capsule_runtime.cli.options import json_option, run_argument
from capsule_runtime.cli.output import write_json
from capsule_runtime.cli.printer import shown
from capsule_runtime.core.outcome import Reason
from capsule_runtime.runs import open_runs


@click.command("interrupt", epilog="Example: capsule interrupt @last")
@run_argument
@json_option
def interrupt_command(run: str, as_json: bool) -> int:
    """Ask a run to stop. What does not stop in time is killed.

    Returns once the run's owner has heard; `capsule wait` waits for the end.
    """
    return anyio.run(_ask, run, Reason.INTERRUPTED, as_json)


@click.command("kill", epilog="Example: capsule kill @last")
@run_argument
@json_option
def kill_command(run: str, as_json: bool) -> int:
    """End a run now, with all its processes. Returns once nothing of it is left."""
    return anyio.run(_ask, run, Reason.KILLED, as_json)


async def _ask(name: str, reason: Reason, as_json: bool) -> int:
    async with open_runs() as runs:
        found = runs.find(name)
        if found.state != "ended":
            await runs.ask(found.id, reason)
        now = runs.find(found.id)
    if as_json:
        write_json({"run": now.id, "state": now.state, "outcome": now.outcome})
        return 0
    how = f"has ended: {now.outcome}" if now.state == "ended" else "was asked to stop"
    write_stderr(shown(f"{now.id} {how}\n"))
    return 0
