"""`capsule drivers`: the harnesses that can be driven here."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

import click
import msgspec
from msgspec import Struct

from capsule_runtime.cli.options import json_option
from capsule_runtime.cli.output import write_json, write_stdout
from capsule_runtime.cli.printer import Shown, shown_line
from capsule_runtime.driver import Description, driver_names, find_driver
from capsule_runtime.errors import CapsuleError
from capsule_runtime.probing import Installed, installed_here

_AT_A_TIME = 4
_TESTED = {True: "yes", False: "no", None: "-"}


class Seen(Struct, frozen=True):
    """One driver, and its harness as it is here."""

    described: Description | None = None
    """None where the driver is broken."""
    installed: Installed = Installed()
    broken: str = ""


@click.command("drivers", epilog="Example: capsule drivers --json")
@json_option
def drivers_command(as_json: bool) -> int:
    """List the installed drivers: whether their harnesses are here, and what they can do.

    A harness is asked for its version, once for each that is installed.
    """
    names = driver_names()
    with ThreadPoolExecutor(_AT_A_TIME) as threads:
        found = dict(zip(names, threads.map(_seen, names), strict=True))
    if as_json:
        write_json({name: _in_json(seen) for name, seen in found.items()})
    else:
        write_stdout(Shown("".join(f"{line}\n" for line in _page(found))))
    return 0


def _seen(name: str) -> Seen:
    """Return what the driver says of its harness; one that is broken must not hide the others."""
    try:
        described = find_driver(name)().describe()
        return Seen(described, installed_here(described))
    except CapsuleError as exc:
        return Seen(broken=exc.message)
    except Exception as exc:  # a driver may be anybody's code
        return Seen(broken=f"{type(exc).__name__}: {exc}")


def _in_json(seen: Seen) -> dict[str, object]:
    if seen.described is None:
        return {"broken": seen.broken}
    described: dict[str, object] = msgspec.to_builtins(seen.described)
    here: dict[str, object] = msgspec.to_builtins(seen.installed)
    return {**described, **here}


def _page(found: Mapping[str, Seen]) -> Iterator[str]:
    """Yield a table, and below it what there is to do about the harnesses that are not here."""
    head = ("DRIVER", "VERSION", "TESTED", "USAGE", "CAN", "KEY", "HARNESS")
    cells = [head, *(_row(name, seen) for name, seen in found.items())]
    shown = [tuple(shown_line(cell) for cell in row) for row in cells]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    for row in shown:
        yield "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip()
    missing = [line for name, seen in found.items() if (line := _to_install(name, seen))]
    if missing:
        yield ""
        yield from missing


def _row(name: str, seen: Seen) -> tuple[str, ...]:
    described, here = seen.described, seen.installed
    if described is None:
        return (name, "-", "-", "-", "-", "-", f"the driver is broken: {seen.broken}")
    where = here.program or ("not installed" if described.command else "the capsule names it")
    tested = _TESTED[here.tested]
    return (
        name,
        here.version or "-",
        tested,
        described.usage,
        _abilities(described),
        _keys(described),
        where,
    )


def _keys(described: Description) -> str:
    """Return the usual key; `--json` has the others."""
    if not described.keys:
        return "-"
    more = len(described.keys) - 1
    return f"{described.keys[0]} (+{more})" if more else described.keys[0]


def _abilities(described: Description) -> str:
    interrupt = described.interrupt_signal
    can = {
        "stream": described.streams_text,
        "steer": described.steers,
        "resume": described.resumes,
        "ask": described.asks_permission,
        signal.Signals(interrupt).name if interrupt else "interrupt": True,
    }
    return " ".join(name for name, does in can.items() if does)


def _to_install(name: str, seen: Seen) -> str:
    described = seen.described
    if described is None or seen.installed.program or not described.install:
        return ""
    return shown_line(f"install {described.harness or name}: {described.install}")
