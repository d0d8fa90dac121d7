"""`capsule store`: look after the database of runs."""

from __future__ import annotations

import anyio
import click

from capsule_runtime.cli.options import json_option
from capsule_runtime.cli.output import write_json, write_stdout
from capsule_runtime.cli.printer import shown
from capsule_runtime.runs import open_runs

DAMAGED = 10


@click.group("store", invoke_without_command=True, epilog="Example: capsule store check")
@click.pass_context
def store_command(ctx: click.Context, /) -> None:
    """Check or rebuild the store of runs."""
    if ctx.invoked_subcommand is None:
        write_stdout(shown(ctx.get_help() + "\n"))


@store_command.command("check")
@json_option
def check_command(as_json: bool) -> int:
    """Read every log and say what is wrong with it. Exits with 10 if anything is."""

    async def check() -> int:
        async with open_runs() as runs:
            problems = await runs.check()
        if as_json:
            write_json(problems)
        else:
            lines = [
                f"{problem.run or 'database'}"
                + (f", entry {problem.seq}" if problem.seq is not None else "")
                + f": {problem.message}\n"
                for problem in problems
            ]
            write_stdout(shown("".join(lines) or "nothing is wrong\n"))
        return DAMAGED if problems else 0

    return anyio.run(check)


@store_command.command("rebuild")
@json_option
def rebuild_command(as_json: bool) -> int:
    """Write the index of runs anew from their logs."""

    async def rebuild() -> int:
        async with open_runs() as runs:
            count = await runs.rebuild()
        if as_json:
            write_json({"runs": count})
        else:
            write_stdout(shown(f"the index was rebuilt from {count} logs\n"))
        return 0

    return anyio.run(rebuild)
