"""Rows, index lines and child processes for tests of the store."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from capsule_runtime.core.chain import Row
from capsule_runtime.core.index import IndexRow
from capsule_runtime.host.log_tail import LogTail
from capsule_runtime.host.rows import ContextRow, Folded
from capsule_runtime.host.store import Store

CHILD = Path(__file__).with_name("store_child.py")
NOW = "2026-01-01T00:00:00Z"


def run_id(number: int) -> str:
    """Return the id of a test's run *number*."""
    return f"run_{number:032x}"


def index_of(number: int, state: str = "running", owner: str | None = "sup") -> IndexRow:
    """Return an index line of run *number*, alone in a context of its own."""
    return IndexRow(run_id(number), f"context-{number}", "demo", "a task", state, NOW, owner=owner)


def context_of(number: int) -> ContextRow:
    """Return the context of run *number*."""
    return ContextRow(f"context-{number}", f"uuid-{number}", "jsonl", NOW)


def frames(first: int, count: int = 1, filler: str = "") -> Row:
    """Return a row of *count* frames from number *first* on."""
    last = first + count - 1
    lines = [
        json.dumps({"type": "text", "seq": seq, "text": filler}) + "\n"
        for seq in range(first, last + 1)
    ]
    return Row(first, last, "".join(lines).encode())


def fact(seq: int, index: IndexRow, context: ContextRow | None = None) -> Row:
    """Return a row of one fact from which `fold` can tell the index."""
    body = {
        "fact": "told",
        "seq": seq,
        "index": asdict(index),
        "context": asdict(context) if context else None,
    }
    return Row(seq, seq, json.dumps(body, separators=(",", ":")).encode() + b"\n")


def fold(rows: Iterable[Row]) -> Folded:
    """Return what the last fact of *rows* says."""
    last = [row for row in rows if not row.frames()][-1]
    said = json.loads(last.body)
    context = ContextRow(**said["context"]) if said["context"] else None
    return Folded(IndexRow(**said["index"]), context)


async def begin(store: Store, number: int, owner: str | None = "sup") -> LogTail:
    """Create run *number* with one fact, and return the end of its log."""
    index, context = index_of(number, owner=owner), context_of(number)
    made = await store.create_run(index, [fact(1, index, context)], context)
    assert isinstance(made, LogTail)
    return made


def read_all(store: Store, run: str) -> list[Row]:
    """Return the whole log of *run*, a page at a time."""
    rows: list[Row] = []
    while page := store.read(run, rows[-1].last if rows else 0):
        rows += page
    return rows


class Child:
    """A process of `store_child.py`; it speaks in lines."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def hear(self) -> str:
        """Return the next line it prints, or "" at its end."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")

    def say(self, line: str) -> None:
        """Send it a line."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def finish(self) -> list[str]:
        """Close its input and return what it still prints."""
        output, _ = self.process.communicate()
        return output.splitlines()


@contextmanager
def child(*arguments: str | Path, wrapper: tuple[str, ...] = ()) -> Generator[Child]:
    """Run `store_child.py` with *arguments*, behind *wrapper*. It does not outlive the block."""
    command = [*wrapper, sys.executable, str(CHILD), *map(str, arguments)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield Child(process)
        finally:
            process.kill()
