"""Options and arguments that several verbs share."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from capsule_runtime.core.money import parse_usd
from capsule_runtime.core.units import parse_duration, parse_size
from capsule_runtime.errors import UsageError
from capsule_runtime.manifest import MEMORY_BYTES_AT_LEAST

MOST = 2**53
"""The largest number that an option takes: beyond it, JSON and SQLite lose count."""

_DIGITS = re.compile("-?[0-9]{1,100}")

_Given = TypeVar("_Given", bound="str | tuple[str, ...] | None")


class Amount(click.IntRange):
    """A whole number in plain digits. Python would read more, such as 1_000 and digits of others."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number. Raises as click wants it."""
        if isinstance(value, str):
            if not _DIGITS.fullmatch(value):
                self.fail(f"{value!r} is not a whole number in plain digits", param, ctx)
            value = int(value)
        return super().convert(value, param, ctx)


AMOUNT = Amount(0, MOST)


def to_seconds(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """Return the seconds of a duration such as 90s, 15m or 1h30m.

    Raises:
        BadParameter: it is none, or it is no time at all.
    """
    if value is None:
        return None
    try:
        seconds = parse_duration(value)
    except ValueError as exc:
        raise click.BadParameter(str(exc), ctx, param) from exc
    if seconds <= 0:
        raise click.BadParameter(f"{value!r} is no time at all", ctx, param)
    return seconds


def to_microusd(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """Return the micro-dollars of a number of dollars such as 1.50.

    Raises:
        BadParameter: it is none.
    """
    if value is None:
        return None
    try:
        return parse_usd(value)
    except ValueError as exc:
        raise click.BadParameter(str(exc), ctx, param) from exc


def to_bytes(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """Return the bytes of a size such as 512MiB or 2GiB.

    Raises:
        BadParameter: it is none, or less than any harness needs.
    """
    if value is None:
        return None
    try:
        size = parse_size(value)
    except ValueError as exc:
        raise click.BadParameter(str(exc), ctx, param) from exc
    if size < MEMORY_BYTES_AT_LEAST:
        raise click.BadParameter(f"{value!r} is less than 32MiB", ctx, param)
    return size


def not_empty(ctx: click.Context, param: click.Parameter, value: _Given) -> _Given:
    """Return *value* as it is. What is empty was meant to be something: an unset variable, mostly.

    Raises:
        BadParameter: it is an empty word, or holds one.
    """
    if value == "" or (isinstance(value, tuple) and "" in value):
        raise click.BadParameter("it is empty", ctx, param)
    return value


def to_absolute(name: str) -> Path:
    """Return the path that *name* means here.

    Raises:
        UsageError: E-USE-031, here is nowhere: the current folder was removed.
    """
    try:
        return Path(os.path.abspath(name))
    except FileNotFoundError as exc:
        raise UsageError(
            "E-USE-031", "the current folder was removed", "Change to one that exists."
        ) from exc


def complete_run(
    _ctx: click.Context, _param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the recent runs that *incomplete* may mean."""
    from capsule_runtime.cli.inspect import recent_runs

    found = [
        CompletionItem(row.id, help=row.task)
        for row in recent_runs(live_only=False, limit=50, recovers=False)
    ]
    return [item for item in [*found, CompletionItem("@last")] if item.value.startswith(incomplete)]


run_argument = click.argument("run", metavar="RUN", shell_complete=complete_run)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
format_option = click.option(
    "--format",
    "format",
    type=click.Choice(["text", "jsonl", "quiet"]),
    default="text",
    help="text for people (the default), jsonl for frames, quiet for the answer alone.",
)
