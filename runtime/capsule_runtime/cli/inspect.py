"""`capsule ps` and `capsule show`: what runs there are, and what is known of one."""

from __future__ import annotations

import time
from collections.abc import Sequence

import anyio
import click

from capsule_runtime.cli.call_view import told_calls
from capsule_runtime.cli.failures import write_stderr
from capsule_runtime.cli.glance import seconds_of
from capsule_runtime.cli.options import MOST, Amount, json_option, run_argument
from capsule_runtime.cli.outline import outline
from capsule_runtime.cli.output import STDOUT, width_of, write_json, write_stdout
from capsule_runtime.cli.printer import Shown, shown, shown_line
from capsule_runtime.cli.result import Result, result_of
from capsule_runtime.cli.spending import prices_for
from capsule_runtime.cli.warnings import told_changes
from capsule_runtime.core.containment import in_one_line
from capsule_runtime.core.egress_facts import EgressSummary, Reached
from capsule_runtime.core.index import IndexRow
from capsule_runtime.core.money import show_told
from capsule_runtime.core.steers import Steer
from capsule_runtime.core.units import show_duration, show_size
from capsule_runtime.errors import CapsuleError
from capsule_runtime.runs import Runs, open_runs

ENDED = "ended"
_LIMIT = 50
_SHORT_ID = len("run_") + 13
"""Enough of an id to tell apart runs that were not created in the same sixteenth of a second."""
_UNNAMED_CONTEXT = "ctx_"
_FILES_SHOWN = 20
_PLACES_SHOWN = 20
_WORDS_SHOWN = 60


@click.command("ps", epilog="Example: capsule ps --all --json")
@click.option("--all", "-a", "every", is_flag=True, help="Runs that have ended too.")
@click.option("--limit", type=Amount(1, MOST), default=_LIMIT, help=f"At most so many ({_LIMIT}).")
@json_option
def ps_command(every: bool, limit: int, as_json: bool) -> int:
    """List the runs that are going on, newest first."""
    rows = recent_runs(live_only=not every, limit=limit)
    if as_json:
        write_json(rows)
    else:
        write_stdout(_table(rows, width_of(STDOUT), time.time()))
    return 0


@click.command("show", epilog="Example: capsule show @last")
@run_argument
@json_option
def show_command(run: str, as_json: bool) -> int:
    """Show what is known of one run: how it ended, what it answered, what it left."""
    result, task = anyio.run(_look_at, run)
    if as_json:
        write_json(result)
    else:
        write_stdout(_page(result, task))
    return 0


def recent_runs(*, live_only: bool, limit: int, recovers: bool = True) -> list[IndexRow]:
    """Return the newest runs of this caller's store; those of dead owners ended, if it *recovers*.

    Raises:
        StoreError: it cannot be read.
    """

    async def look() -> list[IndexRow]:
        async with open_runs() as runs:
            rows = runs.recent(live_only=live_only, limit=limit)
            # A run whose owner was killed is not going on, whatever its log says last.
            if recovers and any(row.state != ENDED for row in rows) and await _recovered(runs):
                rows = runs.recent(live_only=live_only, limit=limit)
            return rows

    return anyio.run(look)


async def _look_at(name: str) -> tuple[Result, str]:
    async with open_runs() as runs:
        run = runs.find(name).id
        if runs.find(run).state != ENDED:
            await _recovered(runs)
        record = runs.record(run)
        task = record.message.text if record.message else ""
        return result_of(record, runs.out_folder(run), await prices_for(record)), task


async def _recovered(runs: Runs) -> bool:
    """End the runs that dead owners left, and tell whether there were any.

    A full disk must not keep anybody from reading, so a failure is told, and no more.
    """
    try:
        return bool(await runs.recover())
    except (CapsuleError, OSError) as exc:
        why = exc.message if isinstance(exc, CapsuleError) else str(exc)
        told = f"note: runs whose supervisor died are still listed as going on: {why}\n"
        write_stderr(shown(told))
        return False


def _table(rows: Sequence[IndexRow], width: int | None, now: float) -> Shown:
    """Return *rows* as columns; cut to *width* where a terminal gives one."""
    head = ("RUN", "STATE", "AGE", "CAPSULE", "CONTEXT", "TASK")
    cells = [
        (
            row.id[:_SHORT_ID] if width else row.id,
            row.reason or row.state,
            show_duration(max(0.0, now - seconds_of(row.created_at))),
            row.capsule,
            "-" if row.context.startswith(_UNNAMED_CONTEXT) else row.context,
            row.task,
        )
        for row in rows
    ]
    shown = [tuple(shown_line(cell) for cell in line) for line in [head, *cells]]
    widths = [max(len(line[column]) for line in shown) for column in range(len(head) - 1)]
    text = ""
    for line in shown:
        columns = (cell.ljust(room) for cell, room in zip(line, [*widths, 0], strict=True))
        text += "  ".join(columns)[:width].rstrip() + "\n"
    return Shown(text)


def _permissions(result: Result) -> str | None:
    if not (result.permissions_allowed or result.permissions_denied):
        return None
    return f"{result.permissions_allowed} allowed, {result.permissions_denied} denied"


def _network(egress: EgressSummary) -> list[str]:
    """Return what a person wants to know first, then place by place."""
    moved = f"{show_size(egress.sent_bytes)} out, {show_size(egress.received_bytes)} in"
    lines = [f"{egress.allowed} allowed ({moved}), {egress.refused} refused"]
    lines += map(_reached, egress.places[:_PLACES_SHOWN])
    if (more := len(egress.places) - _PLACES_SHOWN) > 0:
        lines.append(f"and {more} more")
    if egress.is_cut:
        lines.append("and others that are only counted")
    return lines


def _reached(place: Reached) -> str:
    name = place.place or "what named no place"
    name = f"{name} (upstream)" if place.door == "upstream" else name
    allowed = f"{place.allowed} allowed" if place.allowed else ""
    refused = f"{place.refused} refused ({', '.join(place.why)})" if place.refused else ""
    return f"{name}: {', '.join(filter(None, (allowed, refused)))}"


def _workdir(result: Result) -> str:
    if not result.workdir_mode:
        return result.workdir
    why = f": {result.why_copy}" if result.why_copy else ""
    return f"{result.workdir} ({result.workdir_mode}{why})"


def _steered(it: Steer) -> str:
    became = "taken" if it.taken_at else f"refused ({it.refused})" if it.refused else "not taken"
    words = " ".join(it.text.split())
    short = words if len(words) <= _WORDS_SHOWN else words[: _WORDS_SHOWN - 1] + "…"
    return f"{it.at} {became}: {short}"


def _page(result: Result, task: str) -> Shown:
    """Return what a person wants to know of a run."""
    files = [f"{file.path}  ({show_size(file.size)})" for file in result.out[:_FILES_SHOWN]]
    if (more := len(result.out) - _FILES_SHOWN) > 0:
        files.append(f"and {more} more")
    if result.out_is_cut:
        files.append("and what is not listed: too many files, too deep, or not to be read")
    ended = seconds_of(result.ended_at) if result.ended_at else time.time()
    told, is_partial = result.harness_microusd, result.harness_is_partial
    says = None if told is None else show_told(told, is_partial=is_partial)
    page = {
        "run": result.run,
        "state": result.state,
        "outcome": result.outcome,
        "reason": result.reason,
        "message": result.message,
        "exit status": result.exit_code,
        "task": task,
        "capsule": f"{result.capsule} {result.version}",
        "driver": result.driver,
        "model": result.model,
        "containment": in_one_line(result.walls) if result.walls else result.containment,
        "grants": result.grants,
        "context": result.context,
        "session": result.session,
        "steered": [_steered(it) for it in result.steers] or None,
        "workdir": _workdir(result),
        "changes": told_changes(result.changes) if result.changes else None,
        "patch": result.patch,
        "applied": result.applied_at,
        "may run later": [f"{one.path} ({one.change}): {one.runs}" for one in result.changes.warned]
        if result.changes
        else None,
        "started": result.created_at,
        "took": show_duration(max(0.0, ended - seconds_of(result.created_at))),
        "turns": result.turns,
        "tool calls": result.tool_calls,
        "permissions": _permissions(result),
        "network": _network(result.egress) if result.egress else None,
        "model calls": result.steps,
        "through the gateway": told_calls(result.calls) if result.calls else None,
        "tokens": result.tokens,
        "cost": result.cost.shown if result.cost else "—",
        "the harness says": says,
        "ledger": result.ledger,
        "spend": result.spend,
        "ceilings": result.ceilings.shown if result.ceilings else None,
        "ceilings of the day": result.day.shown if result.day else None,
        "answer": result.response.splitlines() if result.response else None,
        f"files in {result.out_folder}": files,
    }
    return outline(page)
