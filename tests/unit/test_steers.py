"""Words for a working harness: on record before they are sent, taken when the harness says so."""

from __future__ import annotations

import pytest

from capsule_runtime import Exit, Note, Reason, Refused, Send, Steered, TextDelta, TurnEnd
from capsule_runtime.core.actions import HandOver
from capsule_runtime.core.facts import Noted, Said, SteerAsked
from capsule_runtime.core.journal import Append
from capsule_runtime.core.log import Record
from capsule_runtime.core.steers import Steer
from support.script import AT, Script

LINE = Send(b"go on\n")
NO = Refused("E-USE-005", "it takes none")


def record(script: Script) -> Record:
    found = Record()
    for entry in script.entries:
        found.apply_entry(entry)
    return found


def notes(script: Script) -> list[str]:
    return [fact.text for fact in script.facts if isinstance(fact, Noted)]


def test_words_are_on_record_before_they_are_sent() -> None:
    script = Script()

    written, act = script.steer("s1", "go on", LINE)

    assert isinstance(written, Append)
    assert [type(it) for it in written.entries] == [SteerAsked]
    assert act == HandOver(b"go on\n")


def test_words_that_are_refused_are_on_record_and_not_sent() -> None:
    script = Script()

    script.steer("s1", "go on", NO)

    assert script.asked == []
    assert record(script).steers == {"s1": Steer("s1", AT, "go on", refused="it takes none")}


def test_only_the_harness_says_that_words_were_taken() -> None:
    script = Script()
    script.steer("s1", "go on", LINE)
    before = record(script).steers["s1"].taken_at
    script.say(TextDelta("a"), Steered("s1"))

    assert before is None
    assert record(script).steers["s1"].taken_at == AT


@pytest.mark.parametrize("ids", [["s2"], ["s1", "s1"]], ids=["never given", "taken twice"])
def test_words_taken_that_were_not_waited_for_are_noted(ids: list[str]) -> None:
    script = Script()
    script.steer("s1", "go on", LINE)
    script.say(*map(Steered, ids))

    assert [note for note in notes(script) if repr(ids[-1]) in note]
    assert len([it for it in script.facts if isinstance(it, Said)]) == len(ids) - 1


def test_words_that_were_not_taken_are_noted_at_the_end() -> None:
    script = Script()
    script.steer("s1", "go on", LINE)
    script.steer("s2", "and then", LINE)
    script.say(Steered("s2"), TurnEnd("r"))
    script.end(exit=Exit(0, None))

    assert notes(script) == ["the harness did not say that it took s1"]


def test_a_harness_can_be_steered_from_its_start_to_its_last_word() -> None:
    script = Script(launched=False)
    states = [script.run.deafness]
    script.launched()
    states.append(script.run.deafness)
    script.say(Note("x"))
    states.append(script.run.deafness)
    script.say(TurnEnd("r"))
    states.append(script.run.deafness)

    assert [it and it.code for it in states] == ["E-USE-004", None, None, "E-USE-004"]


def test_a_run_that_is_being_stopped_cannot_be_steered() -> None:
    script = Script()
    script.stop(Reason.INTERRUPTED)

    assert script.run.deafness is not None


def test_nothing_is_written_behind_the_final_status() -> None:
    script = Script()
    script.say(TurnEnd("r"))
    script.end()

    assert script.steer("s1", "late", NO) == []
