"""`capsule explain`: an error code, a run or a capsule, in words."""

from __future__ import annotations

import difflib
import os
import re
import textwrap
from pathlib import Path

import anyio
import click

from capsule_runtime.cli.options import json_option, not_empty, to_absolute
from capsule_runtime.cli.outline import outline
from capsule_runtime.cli.output import write_json, write_stdout
from capsule_runtime.cli.printer import Shown, shown
from capsule_runtime.codes import Code, load_codes
from capsule_runtime.errors import UsageError

_WIDTH = 80
_CODE = re.compile(r"E-[A-Z]+-\d+", re.IGNORECASE)


@click.command("explain", epilog="Example: capsule explain E-USE-010")
@click.argument("subject", metavar="CODE|RUN|DIR", callback=not_empty)
@json_option
def explain_command(subject: str, as_json: bool) -> int:
    """Explain an error code; how a run was started; what a capsule would get.

    A subject with a / in it is a folder.
    """
    value: object
    if _CODE.fullmatch(subject):
        code = _find_code(subject.upper())
        if not as_json:
            write_stdout(_page(subject.upper(), code))
            return 0
        value = {"code": subject.upper(), "explained": code}
    elif "/" in subject or os.path.isdir(subject):
        value = _plan_for(to_absolute(subject))
    else:
        value = anyio.run(_start_of, subject)
    write_json(value) if as_json else write_stdout(outline(value))
    return 0


def _find_code(name: str) -> Code:
    codes = load_codes()
    if name not in codes:
        near = difflib.get_close_matches(name, codes, n=3)
        raise UsageError(
            "E-USE-030",
            f"there is no error code {name}",
            f"Close to it: {', '.join(near)}." if near else "Codes look like E-USE-010.",
        )
    return codes[name]


def _page(name: str, code: Code) -> Shown:
    meaning, remedy = textwrap.fill(code.meaning, _WIDTH), textwrap.fill(code.remedy, _WIDTH)
    return shown(f"{name}: {code.title}\n\n{meaning}\n\n{remedy}\n")


def _plan_for(folder: Path) -> object:
    """Return what a run of the capsule in *folder* would get, here and now."""
    from capsule_runtime.messages import Message
    from capsule_runtime.plan import plan_run
    from capsule_runtime.request import RunRequest

    request = RunRequest(capsule=folder, message=Message("", ()), workdir=to_absolute("."))
    return plan_run(request, in_any_tier=True)


async def _start_of(name: str) -> object:
    """Return what was recorded when the run began: the manifest, the launch, the walls."""
    from capsule_runtime.runs import open_runs

    async with open_runs() as runs:
        record = runs.record(runs.find(name).id)
    return {
        "created": record.created,
        "attempt": record.attempt,
        "containment": record.containment,
    }
