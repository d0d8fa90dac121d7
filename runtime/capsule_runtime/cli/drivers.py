"""`capsule drivers`: the harnesses that can be driven here."""

from __future__ import annotations

import click
import msgspec

from capsule_runtime.cli.options import json_option
from capsule_runtime.cli.outline import outline
from capsule_runtime.cli.output import write_json, write_stdout
from capsule_runtime.driver import driver_names, find_driver
from capsule_runtime.errors import HarnessError


@click.command("drivers", epilog="Example: capsule drivers --json")
@json_option
def drivers_command(as_json: bool) -> int:
    """List the installed drivers and what their harnesses can do."""
    found = {name: _described(name) for name in driver_names()}
    if as_json:
        write_json(found)
    else:
        write_stdout(outline(found))
    return 0


def _described(name: str) -> dict[str, object]:
    """Return what the driver says of its harness; one that is broken must not hide the others."""
    try:
        driver = find_driver(name)
        described: dict[str, object] = msgspec.to_builtins(driver().describe())
    except (HarnessError, ImportError, AttributeError, TypeError, SyntaxError) as exc:
        return {"broken": f"{type(exc).__name__}: {exc}"}
    return described
