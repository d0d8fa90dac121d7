"""`capsule trust`: let a capsule, as it is now, have what it asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from capsule_runtime.cli.failures import write_stderr
from capsule_runtime.cli.options import json_option, not_empty, to_absolute
from capsule_runtime.cli.outline import outline
from capsule_runtime.cli.output import write_json, write_stdout
from capsule_runtime.cli.printer import shown
from capsule_runtime.errors import TrustError, UsageError

if TYPE_CHECKING:
    from pathlib import Path


@click.command("trust", epilog="Example: capsule trust ./code-review")
@click.argument("folder", required=False, metavar="[DIR]", callback=not_empty)
@click.option("--yes", is_flag=True, help="Ask nobody.")
@click.option("--list", "listed", is_flag=True, help="Print what is trusted.")
@click.option("--forget", is_flag=True, help="Trust what is in DIR no longer.")
@json_option
@click.pass_context
def trust_command(
    ctx: click.Context, /, folder: str | None, yes: bool, listed: bool, forget: bool, as_json: bool
) -> int:
    """Let the capsule in DIR have what it asks for, as long as nothing in its folder changes."""
    if listed == (folder is not None) or (listed and (forget or yes)) or (forget and yes):
        ctx.fail("name a DIR to trust, with --yes or --forget if need be; or give --list alone")
    if as_json and not listed:
        ctx.fail("--json goes with --list")
    if folder is None:
        return _list(as_json=as_json)
    return _forget(to_absolute(folder)) if forget else _trust(to_absolute(folder), yes=yes)


def _trust(folder: Path, *, yes: bool) -> int:
    from capsule_runtime.cli.trusting import asked, can_ask, page
    from capsule_runtime.trust import look_at, trust

    look = look_at(folder)
    write_stderr(page(look))
    if not look.asks:
        write_stdout(shown("it asks for nothing, so there is nothing to trust\n"))
        return 0
    if not yes:
        if not can_ask():
            raise UsageError(
                "E-USE-033", "nobody is at a terminal to be asked", "Pass --yes to trust it."
            )
        if not asked("trust this capsule as it is now? [y/N] "):
            raise TrustError("E-TRU-005", "the capsule was not trusted; nothing was recorded")
    trust(look)
    write_stdout(shown(f"trusted: {look.capsule.folder}\n"))
    return 0


def _list(*, as_json: bool) -> int:
    from capsule_runtime.trust import trusts

    found = [
        {
            "folder": one.folder,
            "digest": one.digest,
            "at": one.at,
            "asks": [str(item) for item in one.asks],
        }
        for one in trusts()
    ]
    if as_json:
        write_json(found)
    else:
        pages = [outline(one) for one in found]
        write_stdout(shown("\n".join(pages) or "nothing is trusted\n"))
    return 0


def _forget(folder: Path) -> int:
    from capsule_runtime.trust import forget

    told = "is trusted no longer" if forget(folder) else "was not trusted"
    write_stdout(shown(f"{folder} {told}\n"))
    return 0
