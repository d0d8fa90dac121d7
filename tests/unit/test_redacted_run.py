"""A run with secrets: none of its entries and results holds one, and its rules stay the same."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capsule_runtime import (
    Activity,
    Dispatch,
    Event,
    FailureKind,
    Handoff,
    Note,
    Permission,
    Reason,
    Refused,
    Retrying,
    Send,
    Session,
    StatusFrame,
    Suspend,
    Text,
    TextDelta,
    TextFrame,
    Thinking,
    ThinkingDelta,
    ToolCall,
    ToolResult,
    TurnEnd,
    TurnFailed,
    Usage,
)
from capsule_runtime.core import facts
from capsule_runtime.core.actions import HandOver, Reply, WriteResult
from capsule_runtime.core.ledger import Ledger
from capsule_runtime.core.network_facts import Egress
from capsule_runtime.core.redacted_run import RedactedRun
from capsule_runtime.core.redactor import Redactor
from capsule_runtime.core.verdicts import Door
from capsule_runtime.core.work import Warned, WorkChanges
from capsule_runtime.core.work_facts import Collected
from capsule_runtime.manifest import Harness, Manifest
from capsule_runtime.messages import Message, TextPart
from support.plays import Play, Said, finish, perform, plays
from support.script import CONTEXT, RUN, Script, at

SECRET = "correct-horse"
MARK = "[redacted TOKEN]"
WORKING = ("working", "inference turn 1")


class Discreet(Script):
    """A script of a run that has a secret."""

    def __init__(self, secret: str = SECRET, ledger: Ledger | None = None) -> None:
        super().__init__(launched=False)
        redactor = Redactor({"TOKEN": secret})
        self.run = RedactedRun(redactor, RUN, CONTEXT, ledger=ledger, on_permission="deny")
        self.launched()

    @property
    def written(self) -> str:
        """Return all that was written and asked for, as JSON."""
        return msgspec.json.encode([*self.entries, *self.asked]).decode()


_fragments = st.sampled_from([SECRET, SECRET[:4], SECRET[4:9], SECRET[9:], " ", "c", ""])
_telling: st.SearchStrategy[Event] = st.one_of(
    st.builds(TextDelta, _fragments),
    st.builds(TextDelta, _fragments),
    st.builds(ThinkingDelta, _fragments),
    st.builds(Text, _fragments),
    st.builds(Usage, _fragments),
    st.builds(Note, _fragments),
    st.builds(Activity, _fragments),
    st.builds(ToolCall, st.just("c1"), _fragments, _fragments),
    st.builds(ToolResult, st.just("c1"), st.none(), _fragments),
    st.builds(TurnEnd, _fragments),
)
_tales = st.lists(_telling, max_size=14)


def play_on(script: Script, play: Play) -> Script:
    """Perform *play* on *script*."""
    for step in play.steps:
        perform(step, script)
    finish(play.ending, script)
    return script


@given(plays)
def test_what_holds_no_secret_is_as_without_one(play: Play) -> None:
    plain = play.perform()

    discreet = play_on(Discreet("xyzxyzxyz", Ledger(play.ceilings)), play)

    assert discreet.entries == plain.entries
    assert discreet.asked == plain.asked


@given(_tales)
def test_no_entry_holds_a_secret_and_no_client_joins_one(tale: list[Event]) -> None:
    script = Discreet()

    for event in tale:
        script.say(event)
    script.end()

    assert SECRET not in script.written
    for kind in ("text", "thinking"):
        words = [str(short[1]) for short in script.shown if short[0] == kind]
        assert SECRET not in "".join(words)


@given(_tales)
def test_the_log_does_not_depend_on_how_events_were_batched(tale: list[Event]) -> None:
    together, one_by_one = Discreet(), Discreet()

    perform(Said(tuple(tale)), together)
    for event in tale:
        perform(Said((event,)), one_by_one)

    assert together.entries == one_by_one.entries


@given(_tales)
def test_the_frames_keep_their_rules(tale: list[Event]) -> None:
    script = Discreet()

    script.say(*tale)
    script.end()

    owed, frames = False, script.frames
    for frame in frames:
        if isinstance(frame, TextFrame):
            assert owed or not (frame.final and frame.text == "")
            owed = not frame.final
    assert not owed
    finals = [frame for frame in frames if isinstance(frame, StatusFrame) and frame.final]
    assert finals == frames[-1:]
    assert [entry.seq for entry in script.entries] == list(range(1, len(script.entries) + 1))


def test_a_secret_in_several_fragments_is_one_mark() -> None:
    script = Discreet()

    script.say(TextDelta("it is cor"), Usage("m"), ThinkingDelta("rect"), TextDelta("rect-horse!"))

    assert script.shown == [
        WORKING,
        ("text", "it is ", False),
        ("thinking", "rect"),
        ("text", f"{MARK}!", False),
    ]


@pytest.mark.parametrize(
    "event",
    [
        Text("x"),
        ToolCall("c", "t"),
        Permission("p", "t"),
        TurnEnd("x"),
        TurnFailed(FailureKind.OTHER, "x"),
    ],
)
def test_what_was_held_back_is_told_before_what_ends_it(event: Event) -> None:
    script = Discreet()

    script.say(TextDelta("it is cor"), event)

    assert script.shown[:3] == [WORKING, ("text", "it is ", False), ("text", "cor", False)]


def test_what_was_held_back_at_the_end_of_output_is_told() -> None:
    script = Discreet()

    script.say(TextDelta("cor"))
    script.end()

    assert script.shown[:2] == [WORKING, ("text", "cor", False)]


def test_fragments_after_the_end_wait_for_nothing() -> None:
    script = Discreet()

    script.say(TurnEnd(""), TextDelta("cor"), TextDelta("rect-horse"))

    late = [fact.text for fact in script.facts if isinstance(fact, facts.Noted)]
    assert [SECRET in it or "cor" in it for it in late] == [True, False]
    assert MARK in late[1]


WHOLE: list[Event] = [
    Session(SECRET, SECRET, SECRET),
    Text(SECRET),
    Thinking(SECRET, "a1"),
    ToolCall("c", SECRET, {SECRET: [SECRET]}),
    Retrying(1, SECRET),
    Permission("p", SECRET, {"a": SECRET}, [SECRET]),
    Suspend("s", SECRET, {"const": SECRET}),
    Dispatch("d", SECRET, SECRET),
    Handoff("h", SECRET),
    Activity(SECRET),
    Note(SECRET),
    ToolResult("unknown", None, SECRET),
    Usage(SECRET, call_id=SECRET),
    TurnEnd(SECRET, {"a": SECRET}),
    TurnFailed(FailureKind.OTHER, SECRET),
]


@pytest.mark.parametrize("event", WHOLE, ids=lambda event: type(event).__name__)
def test_each_event_is_redacted(event: Event) -> None:
    script = Discreet()

    script.say(event)
    script.end()

    assert SECRET not in script.written
    assert MARK in script.written


@pytest.mark.parametrize("kind", ["note", "activity", "message"])
def test_what_a_driver_cut_in_the_middle_of_a_secret_is_redacted(kind: str) -> None:
    script, words = Discreet(), f"it wrote: {SECRET[:-1]}"
    events: dict[str, Event] = {
        "note": Note(words),
        "activity": Activity(words),
        "message": TurnFailed(FailureKind.OTHER, words),
    }

    script.say(events[kind])

    assert f"it wrote: {MARK}" in script.written
    assert SECRET[:-1] not in script.written


def test_the_result_in_the_out_folder_is_the_one_on_record() -> None:
    script = Discreet()

    script.say(TurnEnd(f"it is {SECRET}"))

    assert WriteResult(f"it is {MARK}") in script.asked


def test_a_request_is_answered_by_the_id_that_its_harness_knows() -> None:
    script = Discreet()

    script.say(Permission(SECRET, "t"), Permission("p2", "t"))

    assert [it.id for it in script.asked if isinstance(it, Reply)] == [SECRET, "p2"]
    assert SECRET not in msgspec.json.encode(script.entries).decode()


def test_words_are_handed_over_as_they_are_and_recorded_without_the_secret() -> None:
    script = Discreet()

    script.steer("s1", f"use {SECRET}", Send(SECRET.encode()))
    script.steer("s2", SECRET, Refused("E-USE-005", "no"))

    assert HandOver(SECRET.encode()) in script.asked
    assert SECRET not in msgspec.json.encode(script.entries).decode()


def created(seq: int, at: str, run: str) -> facts.Fact:
    message = Message("m", (TextPart(f"log in with {SECRET}"),))
    return facts.Created(
        seq, at, run, "o", "/c", Manifest("m", Harness("native")), "c", "u", message, "/w"
    )


def attempted(seq: int, at: str, run: str) -> facts.Fact:
    argv = ("/bin/x", f"--key={SECRET}")
    return facts.AttemptStarted(seq, at, run, 1, "o", "d", argv, ("TOKEN",), "sealed", {})


def reached(seq: int, at: str, run: str) -> facts.Fact:
    door: Door = "proxy"
    return Egress(seq, at, run, door, place=f"{SECRET}.evil.example:443", message=SECRET)


def remembered(seq: int, at: str, run: str) -> facts.Fact:
    return facts.Remembered(seq, at, run, f'{{"key":"{SECRET}"}}'.encode())


@pytest.mark.parametrize("make", [created, attempted, reached, remembered])
def test_facts_of_the_host_are_redacted(make: Callable[[int, str, str], facts.Fact]) -> None:
    script = Discreet()

    script.record(make)

    assert MARK in str(script.facts[-1])
    assert SECRET not in str(script.facts)


def test_a_warning_of_a_hook_keeps_its_path_by_which_it_is_found_again() -> None:
    script = Discreet()
    hook = Warned(f".git/hooks/{SECRET}", "changed", "git runs it")

    script.record(lambda seq, at, run: Collected(seq, at, run, WorkChanges(warned=(hook,))))

    [fact] = [fact for fact in script.facts if isinstance(fact, Collected)]
    assert fact.changes.warned == (hook,)


def test_what_went_wrong_is_redacted() -> None:
    script = Discreet()

    script.note(SECRET)
    script.stop(Reason.DRIVER_FAILED, f"KeyError: {SECRET}")
    script.end()

    assert MARK in script.written
    assert SECRET not in script.written


def test_a_launch_that_fails_does_not_tell() -> None:
    run = RedactedRun(Redactor({"TOKEN": SECRET}), RUN, CONTEXT)

    actions = run.fail(Reason.LAUNCH_FAILED, f"cannot execute {SECRET}", at())

    assert SECRET not in msgspec.json.encode(actions).decode()
