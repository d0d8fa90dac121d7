"""`capsule replay`: what a driver makes of recorded output."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path

import click
import msgspec

from capsule_runtime.cli.inputs import STDIN
from capsule_runtime.cli.output import write_bytes
from capsule_runtime.driver import driver_names, find_driver
from capsule_runtime.errors import UsageError
from capsule_runtime.messages import Exit
from capsule_runtime.replay import Attentive, replay_events, replay_frames

_SIGNALS = range(1, 65)
_CODES = range(256)
_CHUNK_BYTES = 64 * 1024


def _to_exit(ctx: click.Context, param: click.Parameter, value: str) -> Exit:
    """Return how a harness ended: by a code, or by a signal if a minus stands before it."""
    try:
        number = int(value)
    except ValueError as exc:
        raise click.BadParameter(
            f"{value!r} is neither an exit code nor a signal such as -9", ctx, param
        ) from exc
    if number in _CODES:
        return Exit(number, None)
    if -number in _SIGNALS:
        return Exit(None, -number)
    raise click.BadParameter(f"{number} is neither a code (0 to 255) nor a signal", ctx, param)


@click.command("replay", epilog="Example: capsule replay --driver jsonl recorded.jsonl --exit -9")
@click.option("--driver", required=True, metavar="NAME", help="The driver to feed.")
@click.argument("file", metavar="FILE")
@click.option(
    "--exit",
    "ending",
    callback=_to_exit,
    default="0",
    metavar="CODE|-SIGNAL",
    help="How the harness ended (default: 0).",
)
@click.option(
    "--format",
    "format",
    type=click.Choice(["events", "frames"]),
    default="events",
    help="events as the driver gives them (the default), or the frames a client sees.",
)
def replay_command(driver: str, file: str, ending: Exit, format: str) -> int:
    """Feed recorded stdout of a harness to its driver, and print what comes of it as JSON lines.

    FILE may be - for stdin. If no line of it is an event to the driver, that is an error.
    """
    ready = Attentive(find_driver(driver)())
    try:
        with nullcontext(sys.stdin.buffer) if file == STDIN else Path(file).open("rb") as stream:
            replayed = replay_events if format == "events" else replay_frames
            _write_lines(replayed(ready, stream, ending))
    except OSError as exc:
        raise UsageError("E-USE-022", f"{file} cannot be read: {exc.strerror}") from exc
    if ready.has_heard and not ready.has_understood:
        raise UsageError(
            "E-USE-038",
            f"no line of {file} is an event to the driver {driver!r}",
            f"Name the driver of the harness that wrote it: {', '.join(driver_names())}.",
        )
    return 0


def _write_lines(values: Iterable[object]) -> None:
    encoder, waiting = msgspec.json.Encoder(), bytearray()
    for value in values:
        waiting += encoder.encode(value) + b"\n"
        if len(waiting) > _CHUNK_BYTES:
            write_bytes(bytes(waiting))
            waiting.clear()
    write_bytes(bytes(waiting))
