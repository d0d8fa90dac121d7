"""`capsule logs`: the log of a run, entry by entry."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from signal import Signals

import anyio
import click
import msgspec

from capsule_runtime.cli.options import AMOUNT, json_option, run_argument
from capsule_runtime.cli.printer import Shown, shown
from capsule_runtime.cli.screen import open_screen
from capsule_runtime.cli.signals import exit_status_of_signal
from capsule_runtime.cli.watching import watch
from capsule_runtime.core.chain import Row
from capsule_runtime.runs import Runs, open_runs

_ENVELOPE = frozenset({"seq", "prev", "at", "run", "context", "type", "fact"})
_ENTRY_LIMIT = 2000


@click.command("logs", epilog="Example: capsule logs @last --follow --facts")
@run_argument
@click.option("--follow", "-f", is_flag=True, help="Go on until the run ends.")
@click.option(
    "--after",
    type=AMOUNT,
    default=0,
    metavar="SEQ",
    help="Entries after this number.",
)
@click.option("--facts", is_flag=True, help="What clients do not see as well.")
@json_option
def logs_command(run: str, follow: bool, after: int, facts: bool, as_json: bool) -> int:
    """Print the log of a run: one entry a line, as JSON with --json."""
    return anyio.run(_print_log, run, follow, after, facts, as_json)


async def _print_log(name: str, follow: bool, after: int, facts: bool, as_json: bool) -> int:
    async with open_runs() as runs, open_screen() as screen:
        run = runs.find(name).id

        async def show() -> None:
            async for row in _rows(runs, run, after, follow=follow):
                body = row.body if facts else row.frames()
                if body:
                    await screen.data(body if as_json else _lines(body))
            await screen.drained()

        left = await watch(show, screen)
    return exit_status_of_signal(left) if isinstance(left, Signals) else 0


async def _rows(runs: Runs, run: str, after: int, *, follow: bool) -> AsyncIterator[Row]:
    if follow:
        async for row in runs.follow(run, after):
            yield row
    else:
        for row in runs.rows(run, after):
            yield row


def _lines(body: bytes) -> bytes:
    return "".join(f"{line}\n" for line in _entries(body)).encode()


def _entries(body: bytes) -> Iterator[Shown]:
    for line in body.splitlines():
        entry: dict[str, object] = msgspec.json.decode(line)
        at = str(entry["at"])[11:23]
        kind = entry.get("type") or f"({entry.get('fact')})"
        rest = {name: value for name, value in entry.items() if name not in _ENVELOPE}
        said = msgspec.json.encode(rest).decode()
        cut = said if len(said) <= _ENTRY_LIMIT else f"{said[:_ENTRY_LIMIT]}… {len(said)} in all"
        yield shown(f"{entry['seq']:>6}  {at}  {kind}  {cut}")
