"""The fold from a log to what is known of its run, and who writes on from there."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given

from capsule_runtime import (
    Event,
    Frame,
    Manifest,
    Message,
    Outcome,
    Reason,
    Session,
    StatusFrame,
    Text,
    TextDelta,
    TextPart,
    ThinkingDelta,
    ToolCall,
    ToolResult,
    TurnEnd,
    Usage,
)
from capsule_runtime.core import facts
from capsule_runtime.core.actions import Action, Bury, Progress, WriteResult
from capsule_runtime.core.journal import Append, Position
from capsule_runtime.core.log import Record, decode_entries
from capsule_runtime.core.run import Run
from capsule_runtime.manifest import Harness
from support.client import Client
from support.plays import Play, finish, perform, plays
from support.script import AT, CONTEXT, PID, RUN, Script, at, entries_of

Entry = Frame | facts.Fact
encode = msgspec.json.Encoder().encode_lines
MANIFEST = Manifest(
    "demo", Harness("jsonl", config={"interrupt": "int", "depth": [1, {"a": None}]})
)
CREATED = facts.Created(
    1,
    AT,
    RUN,
    "sup_1",
    "/capsules/demo",
    MANIFEST,
    CONTEXT,
    "uuid",
    Message("m1", (TextPart("count the files"),)),
    "/src",
)
STARTED = facts.AttemptStarted(
    2, AT, RUN, 1, "sup_1", "jsonl", ("a", "b"), ("PATH",), "advisory", {"wall_seconds": 60.0}
)


def rows(entries: list[Entry]) -> list[bytes]:
    """Return *entries* as they stand in the log, each in a row of its own."""
    return [encode([entry]) for entry in entries]


def fold(entries: list[Entry]) -> Record:
    return Record.fold(rows(entries))


def live_progress(script: Script) -> Progress:
    """Return what the live run itself knows, as far as it shows."""
    client = Client()
    for frame in script.frames:
        client.receive(frame)
    results = [action.text for action in script.asked if isinstance(action, WriteResult)]
    return Progress(
        position=script.run.position,
        turns=script.run.turns,
        tool_calls=script.run.tool_calls,
        session=script.run.session,
        removal_owed=client.is_streaming,
        reason=script.run.reason,
        message=script.run.message,
        result=results[-1] if results else "",
        kill_started=Bury() in script.asked,
    )


# The fold and the live run.


@given(plays)
def test_the_fold_of_a_log_knows_what_the_live_run_knows(play: Play) -> None:
    script = Script()
    for step in play.steps:
        perform(step, script)
        assert fold(script.entries).progress == live_progress(script)
    finish(play.ending, script)

    assert fold(script.entries).progress == live_progress(script)


@given(plays)
def test_the_fold_names_the_state_of_the_live_run(play: Play) -> None:
    script = Script(launched=False)
    assert fold(script.entries).state == "starting"
    script.launched()
    for step in play.steps:
        assert fold(script.entries).state == script.run.state.name.lower()
        perform(step, script)
    assert fold(script.entries).state == script.run.state.name.lower()
    finish(play.ending, script)

    assert fold(script.entries).state == "ended"


@given(plays)
def test_the_same_entries_give_the_same_record_however_they_stand_in_rows(play: Play) -> None:
    script = play.perform()

    appends = [action for action in script.actions if isinstance(action, Append)]
    blocks = Record.fold(encode(append.entries) for append in appends)

    assert shown(blocks) == shown(fold(script.entries))


@given(plays)
def test_an_entry_read_back_is_the_entry_that_was_written(play: Play) -> None:
    for entry in play.perform().entries:
        body = encode([entry])
        read = decode_entries(body)
        assert read == [entry]


@given(plays)
def test_values_and_bytes_fold_alike(play: Play) -> None:
    script, by_value = play.perform(), Record()

    for entry in script.entries:
        by_value.apply_entry(entry)

    assert shown(by_value) == shown(fold(script.entries))


# Whoever writes on.


def recovered(prefix: list[Entry]) -> list[Action]:
    """End the run that *prefix* is the log of, as its finder does when the owner is dead."""
    run = Run(RUN, CONTEXT, fold(prefix).progress)
    return [
        *run.record(lambda seq, when, id: facts.Recovered(seq, when, id, "sup_2"), at()),
        *run.fail(Reason.LOST, "the owner died", at()),
    ]


@given(plays)
def test_every_prefix_can_be_ended_once_and_keeps_its_reason(play: Play) -> None:
    """Also a prefix cut between two entries of one event, which no commit leaves behind."""
    entries = play.perform().entries
    for cut in range(len(entries)):
        prefix = entries[:cut]
        actions = recovered(prefix)

        whole = [*prefix, *entries_of(actions)]
        client = Client()
        for entry in whole:
            if isinstance(entry, Frame):
                client.receive(entry)
        assert client.final is whole[-1]
        assert [entry.seq for entry in whole] == list(range(1, len(whole) + 1))
        assert fold(whole).reason is (fold(prefix).reason or Reason.LOST)
        assert all(isinstance(action, Append) for action in actions)


def test_recovery_pays_the_removal_that_the_dead_owner_owed() -> None:
    script = Script()
    script.say(TextDelta("half an ans"))

    frames = [e for e in entries_of(recovered(script.entries)) if isinstance(e, Frame)]

    assert [getattr(frame, "text", None) for frame in frames] == ["", None]


def test_recovery_does_not_pay_twice() -> None:
    script = Script()
    script.say(TextDelta("a"), Text("a"))

    frames = [e for e in entries_of(recovered(script.entries)) if isinstance(e, Frame)]

    assert len(frames) == 1


@pytest.mark.parametrize(
    ("reason", "outcome"),
    [(Reason.INTERRUPTED, Outcome.CANCELED), (Reason.WALL, Outcome.TIMED_OUT)],
)
def test_recovery_keeps_an_earlier_reason(reason: Reason, outcome: Outcome) -> None:
    script = Script()
    script.stop(reason, "why")

    record = fold([*script.entries, *entries_of(recovered(script.entries))])

    assert (record.reason, record.outcome) == (reason, outcome)


def test_recovery_of_an_answered_run_completes_it_with_its_answer() -> None:
    script = Script()
    script.say(TurnEnd("the answer"))

    record = fold([*script.entries, *entries_of(recovered(script.entries))])

    assert record.outcome is Outcome.COMPLETED
    assert record.final is not None
    assert record.final.response == "the answer"


def test_recovery_knows_that_the_kill_had_begun() -> None:
    script = Script()
    script.stop(Reason.INTERRUPTED)
    script.grace_over()

    record = fold([*script.entries, *entries_of(recovered(script.entries))])

    assert record.final is not None
    assert "was killed" in record.final.message


def test_recovery_of_a_run_without_a_word_is_lost() -> None:
    record = fold(
        [
            CREATED,
            *entries_of(
                Run(RUN, CONTEXT, fold([CREATED]).progress).fail(
                    Reason.LOST, "the owner died", at()
                )
            ),
        ]
    )

    assert (record.outcome, record.state) == (Outcome.LOST, "ended")


# What the record holds.


def test_an_empty_log_gives_a_record() -> None:
    record = fold([])

    assert (record.state, record.reason, record.outcome, record.message) == (
        "starting",
        None,
        None,
        None,
    )
    assert record.progress == Progress()


def test_the_creation_is_read_back_whole() -> None:
    record = fold([CREATED])

    assert record.created == CREATED
    assert record.message == CREATED.message
    assert record.position == Position(1, 0)


def test_the_attempt_is_read_back_whole() -> None:
    assert fold([CREATED, STARTED]).attempt == STARTED


def test_a_run_is_running_once_its_harness_was_launched() -> None:
    launched = facts.Launched(3, AT, RUN, PID)

    assert fold([CREATED, STARTED]).state == "starting"
    assert fold([CREATED, STARTED, launched]).state == "running"


def test_the_first_stop_is_the_stop() -> None:
    script = Script()
    script.stop(Reason.WALL, "first")
    script.stop(Reason.KILLED, "second")

    stop = fold(script.entries).stop

    assert stop is not None
    assert stop.message == "first"


def test_the_end_is_read_back() -> None:
    script = Script()
    script.say(Session("s1", "model"), TurnEnd("r"))
    script.end(killed=2)

    record = fold(script.entries)

    assert record.session == Session("s1", "model")
    assert record.terminal == TurnEnd("r")
    assert record.exited is not None
    assert record.exited.code == 0
    assert record.tree is not None
    assert record.tree.killed == 2
    assert record.ended is not None
    assert isinstance(record.final, StatusFrame)


@pytest.mark.parametrize(
    ("events", "tokens"),
    [
        ([], None),
        ([Usage("m")], None),
        ([Usage("m", cache_read_tokens=9)], 9),
        ([Usage("m", 3, call_id="a"), Usage("m", 5, call_id="a")], 5),
        ([Usage("m", 0, 0)], 0),
        ([Usage("m", 3, 4)], 7),
        ([Usage("m", 3), Usage("m", output_tokens=5)], 8),
        ([Usage("m", 3, 4), Usage("m", 10, 10, scope="total")], 20),
        ([Usage("m", 10, 10, scope="total"), Usage("m", 15, 20, scope="total")], 35),
    ],
)
def test_tokens_are_counted_and_absent_is_not_zero(events: list[Event], tokens: int | None) -> None:
    script = Script()

    script.say(*events)

    assert fold(script.entries).tokens == tokens


def test_frames_alone_are_enough_to_know_a_tool_result_ended_the_turn() -> None:
    script = Script()

    script.say(ToolCall("c1", "x"), ToolResult("c1"), ThinkingDelta("t"), Text("a"))

    assert fold(script.entries).turns == 2


def test_a_decided_fact_keeps_any_json_value() -> None:
    script = Script()
    value = {"deep": [[1, 2.5, None, True], {"é\u2028": "\x00"}], "big": 2**70}

    script.say(ToolCall("c1", "x", value), ToolResult("c1", content=value))

    said = [entry for entry in script.entries if isinstance(entry, facts.Said)]
    assert decode_entries(encode(said)) == said


SHOWN = (
    "progress state reason outcome turns created attempt launched stop exited tree ended "
    "terminal session final tokens settled"
).split()


def shown(record: Record) -> dict[str, object]:
    """Return all that *record* shows."""
    return {name: getattr(record, name) for name in SHOWN}
