"""The verbs. One small module per group of them; a verb's module loads when it is used."""

from __future__ import annotations

import gc
import io
from contextlib import redirect_stdout
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

import click

from capsule_runtime.cli import interrupts
from capsule_runtime.cli.failures import INTERRUPTED
from capsule_runtime.cli.output import write_bytes
from capsule_runtime.cli.words import check_words

if TYPE_CHECKING:
    from typing_extensions import Buffer


class _Verb(NamedTuple):
    module: str
    help: str


# The short help stands here, so that listing the verbs loads none of them.
_VERBS = {
    "run": _Verb("run", "Give a task to a capsule and follow it to its end."),
    "attach": _Verb("attach", "Follow a run, and exit as it ends."),
    "ps": _Verb("inspect", "List the runs that are going on."),
    "show": _Verb("inspect", "Show what is known of one run."),
    "spend": _Verb("spend", "Add up what runs used and what it cost."),
    "logs": _Verb("logs", "Print the log of a run."),
    "wait": _Verb("attach", "Wait until a run has ended."),
    "interrupt": _Verb("stop", "Ask a run to stop, and give it time to."),
    "steer": _Verb("steer", "Hand words to a working harness."),
    "kill": _Verb("stop", "End a run now, with all its processes."),
    "apply": _Verb("apply", "Apply what a run changed in its copy to the original."),
    "trust": _Verb("trust", "Let a capsule, as it is now, have what it asks for."),
    "init": _Verb("init", "Write a capsule to start from."),
    "drivers": _Verb("drivers", "List the harnesses that can be driven."),
    "explain": _Verb("explain", "Explain an error code, a run or a capsule."),
    "doctor": _Verb("doctor", "Try the walls of this machine."),
    "schema": _Verb("schema", "Print a JSON Schema."),
    "replay": _Verb("replay", "Feed recorded output of a harness to its driver."),
    "store": _Verb("store", "Check or rebuild the store of runs."),
    "completions": _Verb("completions", "Print a completion script for a shell."),
}


class _Verbs(click.Group):
    """The verbs by name, each loaded when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*_VERBS, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _VERBS:
            return super().get_command(ctx, cmd_name)
        module = import_module(f"capsule_runtime.cli.{_VERBS[cmd_name].module}")
        command: click.Command = getattr(module, f"{cmd_name}_command")
        settle_memory()
        interrupts.clean_up_first()
        return command

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            return INTERRUPTED

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl([(name, verb.help) for name, verb in _VERBS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            from difflib import get_close_matches

            near = get_close_matches(args[0], _VERBS, n=1)
            choices = f"did you mean {near[0]!r}?" if near else f"choose from {', '.join(_VERBS)}"
            ctx.fail(f"there is no verb {args[0]!r}; {choices}")
        return super().resolve_command(ctx, args)


def _print_version(ctx: click.Context, _param: click.Parameter, asked: bool) -> None:
    if asked and not ctx.resilient_parsing:
        from importlib.metadata import version

        click.echo(f"capsule {version('capsule-runtime')}")
        ctx.exit()


@click.group(
    cls=_Verbs,
    invoke_without_command=True,
    subcommand_metavar="VERB ...",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Example: capsule run ./code-review --task 'review the last commit'",
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Print the version.",
)
@click.pass_context
def capsule(ctx: click.Context, /) -> None:
    """Run other people's coding agents: supervised, followed, stopped when you say so."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


class _Bytes(io.RawIOBase):
    """What a shell gets when it completes our words."""

    def writable(self) -> bool:
        return True

    def write(self, data: Buffer, /) -> int:
        whole = bytes(data)
        write_bytes(whole)
        return len(whole)


class _Stdout(io.TextIOBase):
    """stdout for click, which prints help by itself: unbuffered, and it fails as ours does."""

    encoding: str = "utf-8"

    def __init__(self) -> None:
        self.buffer = _Bytes()

    def writable(self) -> bool:
        return True

    def write(self, text: str, /) -> int:
        write_bytes(text.encode())
        return len(text)


def obey(words: list[str]) -> object:
    """Do what the command line *words* says; return its exit status, if it has one of its own.

    Raises:
        CapsuleError: it cannot be done.
        ClickException: it cannot be understood.
    """
    check_words(words)
    with redirect_stdout(_Stdout()):
        return capsule.main(words, prog_name="capsule", standalone_mode=False)


def settle_memory() -> None:
    """Spare the collector what is loaded by now, as it stays to the end.

    Looking through it while it loads, and once more at exit, takes 35 ms of a run's 200.
    """
    gc.freeze()
    gc.enable()
