"""`capsule apply`: bring what a run changed in its copy into the original, all of it or nothing."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from typing import TYPE_CHECKING

import anyio
import click

from capsule_runtime.cli.failures import write_stderr
from capsule_runtime.cli.options import json_option, run_argument
from capsule_runtime.cli.output import write_json, write_stdout
from capsule_runtime.cli.printer import Printer, Shown, shown, shown_line
from capsule_runtime.cli.warnings import warning_lines
from capsule_runtime.core.units import show_size
from capsule_runtime.errors import UsageError

if TYPE_CHECKING:
    from capsule_runtime.applying import Applying
    from capsule_runtime.offering import Offer

_SHOWN = 50
_MARKS = {"added": "A", "changed": "M", "removed": "D", "mode": "X"}
_CHUNK = 64 * 1024


@click.command("apply", epilog="Example: capsule apply @last")
@run_argument
@click.option("--diff", is_flag=True, help="Print the patch, and apply nothing.")
@click.option("--yes", is_flag=True, help="Ask nobody.")
@click.option(
    "--with",
    "wanted",
    multiple=True,
    type=click.Choice(["git", "links"]),
    help="Apply files inside .git too, or links that may lead out. May be repeated.",
)
@json_option
@click.pass_context
def apply_command(
    ctx: click.Context, /, run: str, diff: bool, yes: bool, wanted: tuple[str, ...], as_json: bool
) -> int:
    """Apply what RUN changed in its copy to the work directory that was copied.

    Shows the changes and asks first. All of them are applied, or none: none if a file that is
    touched has changed since it was copied. With --json and without --yes nothing is applied.
    """
    if diff and (yes or as_json):
        ctx.fail("--diff prints the patch and applies nothing; leave out --yes and --json")
    found = _find(run, wanted)
    if diff:
        _print_patch(found.offer.patch)
        return 0
    if as_json:
        write_json(_applied(found) if yes and found.selected else found.offer)
        return 0
    write_stderr(_page(found.offer))
    if not found.selected:
        write_stdout(shown("there is nothing to apply\n"))
        return 0
    if not yes:
        _ask(found.offer)
    offer = _applied(found)
    write_stdout(shown(f"applied to {shown_line(offer.workdir)}: {offer.tally}\n"))
    return 0


def _find(name: str, wanted: tuple[str, ...]) -> Applying:
    from capsule_runtime.applying import find_changes
    from capsule_runtime.offering import Wants
    from capsule_runtime.runs import open_runs

    async def find() -> Applying:
        async with open_runs() as runs:
            run = runs.find(name).id
        return await find_changes(run, Wants(git="git" in wanted, links="links" in wanted))

    return anyio.run(find)


def _applied(found: Applying) -> Offer:
    from capsule_runtime.applying import apply

    return apply(found)


def _ask(offer: Offer) -> None:
    from capsule_runtime.cli.trusting import asked, can_ask

    if not can_ask():
        raise UsageError(
            "E-USE-033", "nobody is at a terminal to be asked", "Pass --yes to apply them."
        )
    if not asked(f"apply these changes to {shown_line(offer.workdir)}? [y/N] "):
        raise UsageError("E-USE-074", "nothing was applied")


def _page(offer: Offer) -> Shown:
    """Return what a person should know before they say yes."""
    return shown("".join(f"{shown_line(line)}\n" for line in _lines(offer)))


def _lines(offer: Offer) -> Iterator[str]:
    yield f"{offer.run} changed in its copy of {offer.workdir}: {offer.tally}"
    for change in offer.changes[:_SHOWN]:
        size = "" if change.size is None else f"  ({show_size(change.size)})"
        yield f"{_MARKS[change.change]} {change.path}{size}"
    if (more := len(offer.changes) - _SHOWN) > 0:
        yield f"and {more} more; --diff shows all"
    reasons: dict[str, list[str]] = {}
    for left in offer.left_out:
        reasons.setdefault(left.why, []).append(left.path)
    for why, paths in reasons.items():
        more_paths = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
        yield f"not applied: {paths[0]}{more_paths}: {why}"
    if offer.is_cut:
        yield "not applied: more than is collected; the copy is kept in the folder of the run"
    yield from warning_lines(offer.warned, len(offer.warned))


def _print_patch(path: str) -> None:
    """Print the patch piece by piece; what a terminal would obey is made visible."""
    printer, decoder = Printer(), codecs.getincrementaldecoder("utf-8")("replace")
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK):
            write_stdout(printer.feed(decoder.decode(chunk)))
    write_stdout(Shown(printer.feed(decoder.decode(b"", final=True)) + printer.close()))
