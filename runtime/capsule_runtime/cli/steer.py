"""`capsule steer`: words for a harness at work, whoever owns its run."""

from __future__ import annotations

import anyio
import click

from capsule_runtime.cli.failures import write_stderr
from capsule_runtime.cli.inputs import STDIN, read_words
from capsule_runtime.cli.options import json_option, run_argument
from capsule_runtime.cli.output import write_json
from capsule_runtime.cli.printer import shown
from capsule_runtime.runs import open_runs


@click.command("steer", epilog="Example: capsule steer @last 'leave the tests as they are'")
@run_argument
@click.argument("text", metavar="TEXT")
@json_option
def steer_command(run: str, text: str, as_json: bool) -> int:
    """Hand words to a working harness; - reads them from stdin.

    Returns once they are on record and sent. `capsule show` tells whether the harness took them.
    """
    return anyio.run(_steer, run, read_words() if text == STDIN else text, as_json)


async def _steer(name: str, text: str, as_json: bool) -> int:
    async with open_runs() as runs:
        run = runs.find(name).id
        steer = await runs.steer(run, text)
    if as_json:
        write_json({"run": run, "steer": steer})
    else:
        write_stderr(shown(f"{run} was given {steer}\n"))
    return 0
