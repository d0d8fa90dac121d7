"""The line that a listing shows of a run."""

from __future__ import annotations

import pytest

from capsule_runtime import DataPart, Manifest, Message, Session, TextPart, TurnEnd
from capsule_runtime.core import facts
from capsule_runtime.core.index import IndexRow, index_row
from capsule_runtime.core.log import Record
from capsule_runtime.manifest import Harness
from support.script import AT, CONTEXT, RUN, Script


def created(text: str = "count the files") -> facts.Created:
    return facts.Created(
        1,
        AT,
        RUN,
        "sup_1",
        "/capsules/demo",
        Manifest("demo", Harness("jsonl")),
        CONTEXT,
        "uuid",
        Message("m1", (TextPart(text), DataPart({"depth": 2}))),
        "/src",
    )


def record(*entries: facts.Fact) -> Record:
    folded = Record()
    for entry in entries:
        folded.apply_entry(entry)
    return folded


def test_a_log_without_its_first_fact_has_no_line() -> None:
    assert index_row(Record()) is None


def test_a_run_has_a_line_from_its_creation_on() -> None:
    assert index_row(record(created())) == IndexRow(
        id=RUN,
        context=CONTEXT,
        capsule="demo",
        task="count the files",
        state="starting",
        created_at=AT,
        owner="sup_1",
    )


def test_the_owner_is_that_of_the_last_attempt() -> None:
    started = facts.AttemptStarted(2, AT, RUN, 1, "sup_2", "jsonl", (), (), "advisory", {})

    row = index_row(record(created(), started))

    assert row is not None
    assert row.owner == "sup_2"


def test_the_end_is_in_the_line() -> None:
    script = Script()
    script.record(lambda seq, at, run: created())
    script.say(Session("s1"), TurnEnd("r"))
    script.end()

    row = index_row(record(*script.facts))

    assert row is not None
    assert (row.state, row.outcome, row.reason) == ("ended", "completed", "completed")
    assert (row.ended_at, row.session) == (AT, "s1")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\n\n  b\tc ", "a b c"),
        ("", ""),
        ("x" * 120, "x" * 120),
        ("x" * 121, "x" * 119 + "…"),
    ],
)
def test_the_task_is_one_short_line(text: str, shown: str) -> None:
    row = index_row(record(created(text)))

    assert row is not None
    assert row.task == shown
