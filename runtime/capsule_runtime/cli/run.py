"""`capsule run`: from the words of the command line to a request."""

from __future__ import annotations

import os
from typing import Any, Literal, NamedTuple

import click

from capsule_runtime.cli.detaching import leave_running
from capsule_runtime.cli.harness_words import CommandWithWords
from capsule_runtime.cli.inputs import STDIN, MessageReader, parse_variables
from capsule_runtime.cli.log_lines import FORMATS, LEVELS, LogWishes
from capsule_runtime.cli.options import (
    MOST,
    format_option,
    not_empty,
    to_absolute,
    to_bytes,
    to_microusd,
    to_seconds,
)
from capsule_runtime.cli.outline import outline
from capsule_runtime.cli.output import write_json, write_stdout
from capsule_runtime.cli.result import find_result_path
from capsule_runtime.cli.running import Wishes, run_here
from capsule_runtime.cli.words import check_words
from capsule_runtime.core.ceilings import Ceilings
from capsule_runtime.core.grants import Wish
from capsule_runtime.core.work import WorkdirMode
from capsule_runtime.plan import plan_run
from capsule_runtime.request import RunRequest


class _Given(NamedTuple):
    """The options and arguments as they were given."""

    capsule: str | None
    dash: str | None
    task: str | None
    task_file: str | None
    driver: str | None
    inputs: tuple[str, ...]
    workdir: str
    workdir_mode: WorkdirMode | None
    format: str
    timeout: float | None
    memory: int | None
    processes: int | None
    context: str | None
    wait: bool
    model: str | None
    variables: tuple[str, ...]
    result: str | None
    detach: bool
    containment: str | None
    grants: tuple[str, ...]
    max_usd: int | None
    max_tokens: int | None
    max_turns: int | None
    max_tool_calls: int | None
    on_unmetered: Literal["refuse", "allow"]
    on_permission: Wish | None
    explain: bool
    as_json: bool
    log_level: str | None
    log_format: str


_AMOUNT = click.IntRange(0, MOST)


@click.command(
    "run",
    cls=CommandWithWords,
    epilog="Example: capsule run ./code-review --task 'review the last commit' --timeout 15m",
)
@click.argument("capsule", required=False, metavar="CAPSULE", callback=not_empty)
@click.argument("dash", required=False, metavar="[-]")
@click.option("--task", metavar="TEXT", help="What is to be done; - reads it from stdin.")
@click.option("--task-file", callback=not_empty, metavar="FILE", help="A file that holds the task.")
@click.option(
    "--driver",
    callback=not_empty,
    metavar="NAME",
    help="Run this driver's harness as it is, without a capsule. `capsule drivers` lists them.",
)
@click.option(
    "--input",
    "inputs",
    multiple=True,
    callback=not_empty,
    metavar="FILE",
    help="JSON or text to hand in beside the task; - for stdin. May be repeated.",
)
@click.option(
    "--workdir",
    default=".",
    callback=not_empty,
    metavar="DIR",
    help="What to work on: by default, here.",
)
@click.option(
    "--workdir-mode",
    type=click.Choice(["rw", "copy", "ro"]),
    help="Work in place, on a copy (then `capsule apply`), or only read; not more than the capsule asks.",
)
@format_option
@click.option(
    "--timeout", callback=to_seconds, metavar="TIME", help="Stop the run after this long."
)
@click.option(
    "--memory", callback=to_bytes, metavar="SIZE", help="Let it have no more memory than this."
)
@click.option(
    "--processes",
    type=click.IntRange(min=1),
    metavar="N",
    help="Let it have no more processes and threads.",
)
@click.option(
    "--context",
    callback=not_empty,
    metavar="NAME",
    help="The conversation to go on with, or to begin.",
)
@click.option("--wait", is_flag=True, help="Wait for another run in the same context.")
@click.option(
    "--model",
    callback=not_empty,
    metavar="NAME",
    help="The model to use instead of the capsule's own.",
)
@click.option(
    "--env",
    "variables",
    multiple=True,
    metavar="NAME[=VALUE]",
    help="A variable for the harness; without a value, yours. May be repeated.",
)
@click.option(
    "--result",
    callback=not_empty,
    metavar="FILE",
    help="Write what became of the run to a JSON file.",
)
@click.option("--detach", is_flag=True, help="Print the run's id and leave it running.")
@click.option(
    "--containment",
    type=click.Choice(["sealed", "scoped", "advisory"]),
    help="The weakest walls that will do.",
)
@click.option(
    "--grant",
    "grants",
    multiple=True,
    callback=not_empty,
    metavar="KIND=VALUE",
    help="Give the capsule what it asks for: read=PATH, write=PATH, host=NAME, env=NAME, "
    "secret=NAME or tier=advisory. May be repeated.",
)
@click.option(
    "--max-usd", callback=to_microusd, metavar="USD", help="Stop once it cost this much, like 1.50."
)
@click.option("--max-tokens", type=_AMOUNT, metavar="N", help="Stop once it used so many tokens.")
@click.option(
    "--max-turns", type=_AMOUNT, metavar="N", help="Stop when the model answers more often."
)
@click.option("--max-tool-calls", type=_AMOUNT, metavar="N", help="Stop when it calls more tools.")
@click.option(
    "--on-unmetered",
    type=click.Choice(["refuse", "allow"]),
    default="refuse",
    help="Whether to run under a ceiling on usd or tokens that nobody can hold.",
)
@click.option(
    "--on-permission",
    type=click.Choice(["allow", "deny", "fail", "ask"]),
    help="What the harness is told when it asks whether it may use a tool.",
)
@click.option("--explain", is_flag=True, help="Print what would be done, and do nothing.")
@click.option("--json", "as_json", is_flag=True, help="With --explain: print JSON.")
@click.option(
    "--log-level",
    type=click.Choice(LEVELS),
    envvar="CAPSULE_LOG_LEVEL",
    help="Tell on stderr how things go; by default CAPSULE_LOG_LEVEL, else nothing.",
)
@click.option(
    "--log-format",
    type=click.Choice(FORMATS),
    default="console",
    help="How to tell it: a line each.",
)
@click.pass_context
def run_command(ctx: click.Context, /, **options: Any) -> int:
    """Give a task to a capsule and follow it to its end.

    The answer goes to stdout, everything else to stderr; the exit status tells how the run ended.
    Ctrl-C interrupts the run, a second one kills it. Words after -- go to the harness.
    """
    given = _without_capsule(_Given(**options))
    _check(ctx, given)
    request = _request(given, ctx.meta["harness_words"])
    if given.explain:
        plan = plan_run(request)
        write_json(plan) if given.as_json else write_stdout(outline(plan))
        return 0
    result = find_result_path(given.result) if given.result else None
    if os.isatty(0) and os.isatty(2):
        from capsule_runtime.cli.trusting import offer_trust  # most runs have nobody to ask

        offer_trust(request)
    log = LogWishes(given.log_level, given.log_format) if given.log_level else None
    wishes = Wishes(given.format, given.wait, result, log)
    return leave_running(request, wishes) if given.detach else run_here(request, wishes)


def _without_capsule(given: _Given) -> _Given:
    """Take the first word for what it is where a driver stands for the capsule."""
    if given.driver and given.capsule == STDIN and given.dash is None:
        return given._replace(capsule=None, dash=STDIN)
    return given


def _check(ctx: click.Context, given: _Given) -> None:
    """Refuse what no single option can tell to be wrong."""
    if given.capsule is None and given.driver is None:
        ctx.fail("missing argument 'CAPSULE', or a driver with --driver")
    if given.capsule is not None and given.driver is not None:
        ctx.fail(
            f"--driver {given.driver} runs a harness without a capsule, and {given.capsule!r} is one;"
            " a capsule names its own driver"
        )
    if given.dash not in (None, STDIN):
        ctx.fail(
            f"unexpected word {given.dash!r}; a task is given with --task, "
            "and words for the harness stand after --"
        )
    if given.dash and (given.task is not None or given.task_file):
        ctx.fail("the task was given twice: - reads it from stdin")
    if given.as_json and not given.explain:
        ctx.fail("--json goes with --explain; frames come with --format jsonl")
    if given.wait and not given.context:
        ctx.fail("--wait goes with --context: without one, no other run is in the way")


def _request(given: _Given, harness_words: tuple[str, ...]) -> RunRequest:
    """Build the request; this may read stdin."""
    capsule = None if given.capsule is None else to_absolute(given.capsule)
    workdir = to_absolute(given.workdir)
    check_words([str(capsule or ""), str(workdir)])
    task = STDIN if given.dash else given.task
    return RunRequest(
        capsule=capsule,
        message=MessageReader().read(task, given.task_file, given.inputs),
        workdir=workdir,
        workdir_mode=given.workdir_mode,
        context=given.context,
        model=given.model,
        args=harness_words,
        env=parse_variables(given.variables),
        wall_seconds=given.timeout,
        memory_bytes=given.memory,
        processes=given.processes,
        containment=given.containment,
        grants=given.grants,
        ceilings=Ceilings(
            given.max_usd,
            given.max_tokens,
            given.max_turns,
            given.max_tool_calls,
            given.on_unmetered,
        ),
        on_permission=given.on_permission,
        driver=given.driver,
    )
