"""What a run tried to reach stands in its log, and is shown to whoever asks."""

from __future__ import annotations

import json
import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread

from capsule_runtime.core.destinations import Destination
from capsule_runtime.core.facts import Created
from capsule_runtime.core.index import index_row
from capsule_runtime.core.journal import Append
from capsule_runtime.core.log import Record, decode_entries
from capsule_runtime.core.network_facts import Egress
from capsule_runtime.core.outcome import Reason
from capsule_runtime.core.run import Run
from capsule_runtime.core.verdicts import Ending, Verdict, Why
from capsule_runtime.deciding import Decider
from capsule_runtime.egress_log import EgressLog
from capsule_runtime.host.feed import whole_log
from capsule_runtime.host.log_tail import LogTail
from capsule_runtime.host.run_log import RunLog, rows_of
from capsule_runtime.host.store import Store, open_store
from capsule_runtime.manifest import Harness, Manifest
from capsule_runtime.messages import Message, TextPart
from capsule_runtime.testing import FakeClock
from support.command import PROGRAM
from support.stores import run_id

RUN = run_id(1)
PLACE = Destination("api.example.org")
ALLOWED = Verdict(Ending.CLOSED, PLACE, "1.1.1.1", "", 2048, 4096, 12)
REFUSED = Verdict(Why.HOST, Destination("evil.example", 8443), None, "it was not granted")


@dataclass(frozen=True)
class Written:
    """A run whose doors are served by a test."""

    run: Run
    decider: Decider
    egress: EgressLog
    log: RunLog
    store: Store

    async def end(self) -> None:
        """Write the end of the run."""
        await self.egress.finish()
        ended = partial(self.run.fail, Reason.INTERRUPTED, "")
        await self.decider.decide(ended)

    async def verdicts(self, count: int) -> list[Egress]:
        """Return the next verdicts in its log, as they come."""
        found = list[Egress]()
        with anyio.fail_after(10):
            async for row in self.log.feed.follow(0):
                found += [it for it in decode_entries(row.body) if isinstance(it, Egress)]
                if len(found) >= count:
                    break
        return found

    def facts(self) -> list[Egress]:
        """Return the verdicts in its log, as it is now."""
        rows = whole_log(lambda after: self.store.read(RUN, after, 64))
        entries = [entry for row in rows for entry in decode_entries(row.body)]
        return [entry for entry in entries if isinstance(entry, Egress)]


@asynccontextmanager
async def open_run(state: Path) -> AsyncGenerator[Written]:
    """Begin the log of a run in *state*, which is not launched."""
    clock, run = FakeClock(), Run(RUN, "context-1")
    manifest = Manifest("demo", Harness("jsonl"))
    message = Message("task", (TextPart("do it"),))

    def created(seq: int, at: str, id: str) -> Created:
        return Created(seq, at, id, "sup", "/x", manifest, "context-1", "uuid-1", message, "/w")

    first = [it for it in run.record(created, clock.moment()) if isinstance(it, Append)]
    record = Record.fold(row.body for row in rows_of(first))
    index = index_row(record)
    assert index is not None
    async with open_store(state) as store:
        tail = await store.create_run(index, rows_of(first), None)
        assert isinstance(tail, LogTail)
        log = RunLog(store, tail, record)
        decider = Decider(run, log, clock, lambda _: None)
        yield Written(run, decider, EgressLog(run, decider), log, store)
        log.close()


async def test_verdicts_are_written_as_they_come_in_their_order(tmp_path: Path) -> None:
    facts = list[Egress]()
    async with open_run(tmp_path / "state") as written, anyio.create_task_group() as tasks:
        tasks.start_soon(written.egress.write)
        written.egress.tell("proxy", ALLOWED)
        written.egress.tell("proxy", REFUSED)
        facts = await written.verdicts(2)
        tasks.cancel_scope.cancel()

    assert [fact.place for fact in facts] == ["api.example.org", "evil.example:8443"]
    assert [fact.seq for fact in facts] == [2, 3]


async def test_what_is_told_as_everything_is_cancelled_stands_before_the_end(
    tmp_path: Path,
) -> None:
    async with open_run(tmp_path / "state") as written:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(written.egress.write)
            tasks.cancel_scope.cancel()
            written.egress.tell("upstream", ALLOWED)
        await written.end()
        facts = written.facts()

    assert [(fact.door, fact.ended) for fact in facts] == [("upstream", Ending.CLOSED)]


async def test_show_and_logs_tell_what_was_reached_and_what_was_refused(tmp_path: Path) -> None:
    state = tmp_path / "state"
    async with open_run(state) as written:
        written.egress.tell("proxy", ALLOWED)
        for _ in range(1_003):
            written.egress.tell("proxy", REFUSED)
        await written.end()
    page, result, log = [
        await anyio.to_thread.run_sync(capsule, state, *words)
        for words in (["show", RUN], ["show", "--json", RUN], ["logs", "--facts", RUN])
    ]

    assert "1 allowed (2.0 KiB out, 4.0 KiB in), 1003 refused" in page
    assert "api.example.org: 1 allowed" in page
    assert "evil.example:8443: 1000 refused (host)" in page
    assert json.loads(result)["egress"]["places"][0] == {
        "door": "proxy",
        "place": "api.example.org",
        "allowed": 1,
        "refused": 0,
        "sent_bytes": 2048,
        "received_bytes": 4096,
        "why": [],
    }
    assert log.count("(egress)") == 1_001
    assert '(egress-more)  {"allowed":0,"refused":3,"sent":0,"received":0}' in log


def capsule(state: Path, *words: str) -> str:
    """Return what `capsule` prints to *words*."""
    done = subprocess.run(
        [PROGRAM, *words], env={"CAPSULE_STATE": str(state)}, capture_output=True, timeout=30
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.decode()
