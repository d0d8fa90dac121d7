"""The numbers of a run's log."""

from __future__ import annotations

from capsule_runtime import ArtifactFrame, StatusFrame, TextFrame, ThinkingFrame
from capsule_runtime.core.facts import Noted
from capsule_runtime.core.journal import Append, Journal, Position

RUN, AT = "run_1", "2026-01-02T03:04:05Z"


def journal(position: Position | None = None) -> Journal:
    new = Journal(RUN, position or Position())
    new.at = AT
    return new


def note(to: Journal, text: str) -> None:
    to.fact(lambda seq, at, run: Noted(seq, at, run, text))


def test_every_entry_gets_the_next_number_and_every_frame_the_one_before() -> None:
    log = journal()

    note(log, "a")
    log.text("b", False)
    note(log, "c")
    log.thinking("d")
    log.status("working", "e", "ctx")
    log.artifact(
        lambda seq, prev, at, run: ArtifactFrame(
            seq, prev, at, run, "t", "c1", None, False, 0, None, False
        )
    )

    assert [entry for group in log.take() for entry in group.entries] == [
        Noted(1, AT, RUN, "a"),
        TextFrame(2, 0, AT, RUN, "b", False),
        Noted(3, AT, RUN, "c"),
        ThinkingFrame(4, 2, AT, RUN, "d"),
        StatusFrame(5, 4, AT, RUN, "working", "e", False, None, "ctx"),
        ArtifactFrame(6, 5, AT, RUN, "t", "c1", None, False, 0, None, False),
    ]
    assert log.position == Position(6, 6)


def test_what_was_collected_is_one_write_in_order() -> None:
    log = journal()

    log.text("a", False)
    note(log, "b")
    log.text("c", True)
    (group,) = log.take()

    assert (group.first, group.last) == (1, 3)
    assert [entry.seq for entry in group.entries] == [1, 2, 3]
    assert [fact.seq for fact in group.facts] == [2]


def test_what_was_taken_is_not_taken_again() -> None:
    log = journal()
    log.text("a", False)

    (group,) = log.take()
    log.text("b", False)

    assert group == Append(
        1, 1, [TextFrame(seq=1, prev=0, at=AT, run=RUN, text="a", final=False)], []
    )
    assert [entry.seq for taken in log.take() for entry in taken.entries] == [2]
    assert log.take() == []


def test_a_log_is_written_on_where_it_ends() -> None:
    log = journal(Position(7, 5))

    log.text("a", False)

    (group,) = log.take()
    assert [(entry.seq, getattr(entry, "prev", None)) for entry in group.entries] == [(8, 5)]


def test_a_fact_leaves_the_last_frame() -> None:
    log = journal(Position(7, 5))

    note(log, "a")

    assert log.position == Position(8, 5)
