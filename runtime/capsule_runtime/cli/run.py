"""`capsule run`: from the words of the command line to a request."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from capsule_runtime.cli.detaching import leave_running
from capsule_runtime.cli.log_lines import FORMATS, LEVELS, LogWishes
from capsule_runtime.cli.options import (
    AMOUNT,
    Amount,
    format_option,
    not_empty,
    to_bytes,
    to_microusd,
    to_seconds,
)
from capsule_runtime.cli.outline import outline
from capsule_runtime.cli.output import write_json, write_stdout
from capsule_runtime.cli.result import find_result_path, refusals_kept
from capsule_runtime.cli.run_request import Given, check, request_of, without_capsule
from capsule_runtime.cli.running import Wishes, run_here
from capsule_runtime.manifest import PROCESSES_AT_LEAST

if TYPE_CHECKING:
    from capsule_runtime.plan import Plan
    from capsule_runtime.request import RunRequest


class _RunCommand(click.Command):
    """A command whose words after `--` are for the harness."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        ctx.meta["harness_words"] = tuple(args[end + 1 :])
        return super().parse_args(ctx, args[:end])

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- WORD...]"]


@click.command(
    "run",
    cls=_RunCommand,
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
    type=Amount(min=PROCESSES_AT_LEAST),
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
    help="The walls to run behind; the strongest there are, from scoped on, if you do not say.",
)
@click.option(
    "--upstream",
    callback=not_empty,
    metavar="HOST:PORT",
    help="The one place that a sealed run reaches, at that port of its own 127.0.0.1.",
)
@click.option(
    "--record",
    callback=not_empty,
    metavar="FILE",
    help="Record the model calls that pass the gateway to a new file; no key is in it.",
)
@click.option(
    "--playback",
    callback=not_empty,
    metavar="FILE",
    help="Answer model calls from such a file: nothing is called, no key is needed, all is free.",
)
@click.option(
    "--playback-miss",
    type=click.Choice(["strict", "lenient"]),
    default="strict",
    help="What is not in it is refused (strict), or gets the next answer of its model (lenient).",
)
@click.option(
    "--grant",
    "grants",
    multiple=True,
    callback=not_empty,
    metavar="KIND=VALUE",
    help="Give the capsule what it asks for: read=PATH, write=PATH, host=NAME, env=NAME, "
    "secret=NAME, provider=NAME or tier=advisory. May be repeated.",
)
@click.option(
    "--max-usd", callback=to_microusd, metavar="USD", help="Stop once it cost this much, like 1.50."
)
@click.option("--max-tokens", type=AMOUNT, metavar="N", help="Stop once it used so many tokens.")
@click.option(
    "--max-turns", type=AMOUNT, metavar="N", help="Stop when the model answers more often."
)
@click.option("--max-tool-calls", type=AMOUNT, metavar="N", help="Stop when it calls more tools.")
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
    given = without_capsule(Given(**options))
    check(ctx, given)
    if given.explain:
        plan = _plan_for(request_of(given, ctx.meta["harness_words"]))
        write_json(plan) if given.as_json else write_stdout(outline(plan))
        return 0
    result = find_result_path(given.result) if given.result else None
    with refusals_kept(result):
        request = request_of(given, ctx.meta["harness_words"])
        if os.isatty(0) and os.isatty(2):
            from capsule_runtime.cli.trusting import offer_trust  # most runs have nobody to ask

            offer_trust(request)
    log = LogWishes(given.log_level, given.log_format) if given.log_level else None
    wishes = Wishes(given.format, given.wait, result, log)
    return leave_running(request, wishes) if given.detach else run_here(request, wishes)


def _plan_for(request: RunRequest) -> Plan:
    from capsule_runtime.plan import known_context, plan_run  # most runs are not explained

    if request.context is None:
        return plan_run(request)
    import anyio

    return plan_run(request, context=anyio.run(known_context, request))
