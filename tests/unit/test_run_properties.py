"""What holds for every run, whatever its harness says and whenever it is stopped."""

from __future__ import annotations

from hypothesis import given

from capsule_runtime import Outcome, StatusFrame, TextFrame, TurnEnd
from capsule_runtime.core.actions import Action, Bury, Interrupt, Reply, WindDown, WriteResult
from capsule_runtime.core.facts import Ended, KillStarted, PermissionDecided, StopAsked
from capsule_runtime.core.facts import Said as SaidFact
from capsule_runtime.core.journal import Append
from capsule_runtime.core.log import Record
from support.client import Client
from support.plays import Play, Said, perform, plays
from support.script import is_sound


@given(plays)
def test_the_frames_are_those_that_the_rules_name(play: Play) -> None:
    expected = play.expected()

    script = play.perform()

    assert script.shown == expected.frames
    assert script.run.turns == expected.turns
    assert (script.run.reason, script.run.message) == (expected.reason, expected.message)


@given(plays)
def test_there_is_one_final_status_and_it_is_the_last_frame(play: Play) -> None:
    frames = play.perform().frames

    finals = [frame for frame in frames if isinstance(frame, StatusFrame) and frame.final]
    assert finals == frames[-1:]


@given(plays)
def test_no_two_removals_without_a_delta_between_and_none_unpaid_at_the_end(play: Play) -> None:
    owed = False
    for frame in play.perform().frames:
        if isinstance(frame, TextFrame):
            removal = frame.final and frame.text == ""
            assert owed or not removal
            owed = not frame.final
        if isinstance(frame, StatusFrame) and frame.final:
            assert not owed


@given(plays)
def test_a_client_holds_each_segments_words_once(play: Play) -> None:
    client = Client()
    script = play.perform()

    for frame in script.frames:
        client.receive(frame)

    assert client.final is not None
    deltas = [f.text for f in script.frames if isinstance(f, TextFrame) and not f.final]
    whole = [f.text for f in script.frames if isinstance(f, TextFrame) and f.final and f.text]
    assert "".join(client.texts) == "".join(deltas + whole)
    assert len(whole) <= 1


@given(plays)
def test_the_answer_reaches_a_completed_runs_client(play: Play) -> None:
    script = play.perform()

    final = script.frames[-1]
    assert isinstance(final, StatusFrame)
    results = [action.text for action in script.asked if isinstance(action, WriteResult)]
    if script.run.outcome is Outcome.COMPLETED:
        assert [final.response] == results
    else:
        assert final.response is None


@given(plays)
def test_entries_are_numbered_without_a_gap_and_frames_chained(play: Play) -> None:
    script = play.perform()

    assert [entry.seq for entry in script.entries] == list(range(1, len(script.entries) + 1))
    last = 0
    for frame in script.frames:
        assert frame.prev == last
        last = frame.seq
    assert (script.run.position.seq, script.run.position.frame) == (len(script.entries), last)


@given(plays)
def test_rows_hold_one_kind_and_are_counted_right(play: Play) -> None:
    appends = [action for action in play.perform().actions if isinstance(action, Append)]

    assert all(map(is_sound, appends))


@given(plays)
def test_what_an_act_announces_stands_before_it(play: Play) -> None:
    written: list[object] = []
    for action in play.perform().actions:
        if isinstance(action, Append):
            written += action.entries
        else:
            assert _announced(action, written), action


@given(plays)
def test_nothing_is_asked_twice_and_nothing_after_the_end(play: Play) -> None:
    script = play.perform()

    kinds = [type(action) for action in script.asked]
    for kind in (Interrupt, Bury, WindDown, WriteResult):
        assert kinds.count(kind) <= 1
    ended = next(i for i, entry in enumerate(script.entries) if isinstance(entry, Ended))
    assert all(not isinstance(entry, Ended) for entry in script.entries[ended + 1 :])


@given(plays)
def test_a_log_does_not_depend_on_how_events_were_batched(play: Play) -> None:
    together, one_by_one = play.script(), play.script()

    for step in play.steps:
        perform(step, together)
        for smaller in step.one_by_one() if isinstance(step, Said) else [step]:
            perform(smaller, one_by_one)

    assert one_by_one.entries == together.entries
    assert one_by_one.asked == together.asked


@given(plays)
def test_a_log_tells_the_account_that_the_ceilings_counted(play: Play) -> None:
    script = play.perform()
    record = Record()
    for entry in script.entries:
        record.apply_entry(entry)

    assert record.usage.total == script.run.ledger.usage.total
    assert record.settled == script.run.ledger.settled()
    assert record.settled is not None
    assert record.tokens == record.settled.tokens


def _announced(action: Action, written: list[object]) -> bool:
    last = written[-1] if written else None
    match action:
        case Bury():
            return isinstance(last, KillStarted)
        case Interrupt():
            return isinstance(last, StopAsked)
        case Reply(id) if isinstance(last, PermissionDecided):
            return last.id == id
        case Reply(id):
            return isinstance(last, SaidFact) and getattr(last.event, "id", None) == id
        case WindDown():
            return any(isinstance(entry, SaidFact) for entry in written)
        case WriteResult():
            # It announces nothing: it stands before all that its turn's end writes.
            return not any(
                isinstance(entry, SaidFact) and isinstance(entry.event, TurnEnd)
                for entry in written
            )
        case _:
            return True
