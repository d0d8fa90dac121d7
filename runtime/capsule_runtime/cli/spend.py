"""`capsule spend`: what runs used and what it cost, by today's prices."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Literal, NamedTuple, assert_never

import anyio
import click
from msgspec import Struct

from capsule_runtime.cli.failures import write_stderr
from capsule_runtime.cli.options import MOST, json_option
from capsule_runtime.cli.output import write_json, write_stdout
from capsule_runtime.cli.printer import Shown, shown_line
from capsule_runtime.cli.shown_cost import ShownCost, shown_cost
from capsule_runtime.core.calls import CallUsage, sum_of_known
from capsule_runtime.core.dated_usage import Untold, dated_usage
from capsule_runtime.core.index import IndexRow
from capsule_runtime.core.money import show_told, show_usd
from capsule_runtime.core.prices import PriceTable
from capsule_runtime.core.told_dollars import ToldPart, ToldSum
from capsule_runtime.core.units import parse_duration
from capsule_runtime.errors import StoreError
from capsule_runtime.runs import Runs, open_runs
from capsule_runtime.settings import price_book

By = Literal["capsule", "model", "day"]
DAMAGED = "E-STO-004"
_DATE = len("2026-01-31")
_HEAD = ("RUNS", "CALLS", "TOKENS", "COST", "THE HARNESS SAYS", "ESTIMATED", "UNSETTLED")
"""The last three only where there is something to say."""


class Sum(Struct, frozen=True):
    """What the calls of one capsule, model or day come to, or all of them."""

    of: str
    runs: int
    steps: int
    """How many calls of a model were heard of."""
    tokens: int | None
    """Null when nobody told."""
    cost: ShownCost | None
    """Null when there was no call."""
    harness_microusd: int | None
    """What the harnesses themselves say that it cost; null when they say nothing."""
    harness_is_partial: bool
    """Whether that is the least: of some calls they said nothing."""
    estimated_microusd: int
    """What calls were charged with of which nobody told what they used."""
    unsettled_microusd: int
    """What was held for calls that were cut off: they cost so much at most."""


class Account(Struct, frozen=True):
    """What was spent *since* an instant, by the price table *prices*."""

    since: str | None
    prices: str
    total: Sum
    by: By | None
    sums: tuple[Sum, ...]
    damaged: tuple[str, ...] = ()
    """The runs whose logs cannot be read: what they spent is in no sum."""


class _Used(NamedTuple):
    run: IndexRow
    at: str
    what: CallUsage | ToldPart | Untold


def to_instant(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Return the instant that a date, or a duration before now, means; RFC 3339, in UTC.

    Raises:
        BadParameter: it is neither.
    """
    if value is None:
        return None
    try:
        if "-" in value:
            found = datetime.fromisoformat(value)
            found = found if found.tzinfo else found.replace(tzinfo=UTC)
        else:
            found = datetime.fromtimestamp(time.time() - parse_duration(value), UTC)
        return f"{found.astimezone(UTC):%Y-%m-%dT%H:%M:%S}"
    except (ValueError, OverflowError) as exc:
        message = f"{value!r} is no date like 2026-01-31 and no duration like 24h or 7d"
        raise click.BadParameter(message, ctx, param) from exc


@click.command("spend", epilog="Example: capsule spend --since 7d --by model")
@click.option(
    "--since",
    callback=to_instant,
    metavar="DATE|TIME",
    help="Calls since a day in UTC (2026-01-31), or not longer ago than this (24h, 7d).",
)
@click.option(
    "--by", type=click.Choice(["capsule", "model", "day"]), help="One line for each of them."
)
@json_option
def spend_command(since: str | None, by: By | None, as_json: bool) -> int:
    """Add up what runs used and what it cost, by today's prices.

    "≥" stands before a cost of which a part is not known; "—" is one of which nothing is known.
    What a harness itself says that its calls cost stands beside it, where one says so; and so does
    what nobody knows of calls through the gateway: estimated, or unsettled because they were cut off.
    """
    account = anyio.run(_add_up, since, by)
    write_json(account) if as_json else write_stdout(_table(account))
    for run in account.damaged:
        write_stderr(f"error[{DAMAGED}]: the log of {run} is damaged: it is in no sum\n")
    return StoreError.exit_status if account.damaged else 0


async def _add_up(since: str | None, by: By | None) -> Account:
    prices = await price_book().table()
    async with open_runs() as runs:
        used, damaged = list[_Used](), list[str]()
        for row in runs.recent(limit=MOST):
            # A run that ended before has no later calls.
            if since is None or row.ended_at is None or row.ended_at >= since:
                try:
                    found = list(_used_in(runs, row))
                except StoreError as exc:
                    if exc.code != DAMAGED:
                        raise
                    damaged.append(row.id)  # one log must not hide what the others say
                else:
                    used += (it for it in found if since is None or it.at >= since)
    total, sums = _sum("all", used, prices), tuple(_sums(used, by, prices))
    return Account(since, prices.version, total, by, sums, tuple(damaged))


def _used_in(runs: Runs, row: IndexRow) -> Iterator[_Used]:
    for at, what in dated_usage(row.body for row in runs.rows(row.id)):
        yield _Used(row, at, what)


def _sums(used: Iterable[_Used], by: By | None, prices: PriceTable) -> Iterator[Sum]:
    groups: defaultdict[str, list[_Used]] = defaultdict(list)
    for it in used:
        match by:
            case "capsule":
                groups[it.run.capsule].append(it)
            case "model":
                groups[it.what.model].append(it)
            case "day":
                groups[it.at[:_DATE]].append(it)
            case None:
                return
    for name in sorted(groups):
        yield _sum(name, groups[name], prices)


def _sum(name: str, used: list[_Used], prices: PriceTable) -> Sum:
    calls, told, untold = list[CallUsage](), ToldSum(), list[Untold]()
    for it in used:
        match it.what:
            case ToldPart():
                told.add(it.what)
            case Untold():
                untold.append(it.what)
            case CallUsage():
                calls.append(it.what)
            case _:
                assert_never(it.what)
    return Sum(
        name,
        len({it.run.id for it in used}),
        len(calls),
        sum_of_known(*(call.tokens for call in calls)),
        shown_cost(calls, prices),
        told.microusd,
        told.is_partial,
        sum(it.microusd for it in untold if not it.is_cut),
        sum(it.microusd for it in untold if it.is_cut),
    )


def _table(account: Account) -> Shown:
    head = ((account.by or "").upper(), *_HEAD)
    total = account.total
    lines = [head, *map(_cells, account.sums), _cells(total)]
    said = (total.harness_microusd is not None, total.estimated_microusd, total.unsettled_microusd)
    kept = [*range(len(head) - len(said))]
    kept += [len(kept) + index for index, any_of_it in enumerate(said) if any_of_it]
    lines = [tuple(line[column] for column in kept) for line in lines]
    shown = [tuple(shown_line(cell) for cell in line) for line in lines]
    widths = [max(len(line[column]) for line in shown) for column in range(len(lines[0]))]
    text = ""
    for name, *figures in shown:
        columns = [name.ljust(widths[0])]
        columns += [cell.rjust(room) for cell, room in zip(figures, widths[1:], strict=True)]
        text += "  ".join(columns) + "\n"
    return Shown(text)


def _cells(line: Sum) -> tuple[str, ...]:
    tokens = "—" if line.tokens is None else str(line.tokens)
    cost, told = line.cost.shown if line.cost else "—", line.harness_microusd
    says = "—" if told is None else show_told(told, is_partial=line.harness_is_partial)
    untold = map(show_usd, (line.estimated_microusd, line.unsettled_microusd))
    return line.of, str(line.runs), str(line.steps), tokens, cost, says, *untold
