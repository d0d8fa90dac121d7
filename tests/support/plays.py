"""Random runs for the property tests: what a harness may say, and when it may be stopped."""

from __future__ import annotations

from dataclasses import dataclass

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
    Retrying,
    Session,
    Sleep,
    Steered,
    Suspend,
    Text,
    TextDelta,
    Thinking,
    ThinkingDelta,
    ToolCall,
    ToolResult,
    TurnEnd,
    TurnFailed,
    Usage,
)
from capsule_runtime.core.ceilings import Ceilings
from capsule_runtime.core.ledger import Ledger
from support.script import GONE, Script
from support.stream import Stream

NO_CEILINGS = Ceilings()


@dataclass(frozen=True, slots=True)
class Said:
    """The harness says *events* in one breath."""

    events: tuple[Event, ...]

    def one_by_one(self) -> list[Said]:
        """Return the same words, each in a breath of its own."""
        return [Said((event,)) for event in self.events]


@dataclass(frozen=True, slots=True)
class Stop:
    """Somebody asks the run to stop."""

    reason: Reason


@dataclass(frozen=True, slots=True)
class Grace:
    """The grace passes."""


@dataclass(frozen=True, slots=True)
class HostNote:
    """The host notes something."""


@dataclass(frozen=True, slots=True)
class Gone:
    """The harness exits; *last_words* are the driver's."""

    last_words: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class Failed:
    """The run fails outside the harness."""

    reason: Reason


Step = Said | Stop | Grace | HostNote
Ending = Gone | Failed


@dataclass(frozen=True, slots=True)
class Play:
    """One run from its launch to its end."""

    steps: tuple[Step, ...]
    ending: Ending
    ceilings: Ceilings = NO_CEILINGS

    def script(self) -> Script:
        """Return a real run to play it on."""
        return Script(ledger=Ledger(self.ceilings))

    def perform(self) -> Script:
        """Play it on a real run."""
        script = self.script()
        for step in self.steps:
            perform(step, script)
        finish(self.ending, script)
        return script

    def expected(self) -> Stream:
        """Return what a client must be shown of it."""
        stream = Stream(self.ceilings)
        for step in self.steps:
            expect(step, stream)
        match self.ending:
            case Gone(words):
                for event in words:
                    stream.hear(event)
                stream.end(Reason.DRIVER_FAILED, "the driver named no terminal event for the exit")
            case Failed(reason):
                stream.end(reason, "it failed")
        return stream


def perform(step: Step, script: Script) -> None:
    """Do *step* to a real run."""
    match step:
        case Said(events):
            script.say(*events)
        case Stop(reason):
            script.stop(reason, f"because of {reason}")
        case Grace():
            script.grace_over()
        case HostNote():
            script.note("seen")


def finish(ending: Ending, script: Script) -> None:
    """End a real run by *ending*."""
    match ending:
        case Gone(words):
            script.end(*words)
        case Failed(reason):
            script.fail(reason, "it failed")


def expect(step: Step, stream: Stream) -> None:
    """Tell the oracle of *step*."""
    match step:
        case Said(events):
            for event in events:
                stream.hear(event)
        case Stop(reason):
            stream.stop(reason, f"because of {reason}")
        case Grace():
            stream.grace_over()
        case HostNote():
            pass


_words = st.sampled_from(["", "a", "b c", "é\n", "😀"])
_ids = st.sampled_from(["c1", "c2", "c3"])
_answers = st.sampled_from([None, None, "m1", "m2"])
_values = st.sampled_from([None, "x", 1, {"a": [1, "b"]}])
_failures = st.builds(TurnFailed, st.sampled_from(FailureKind), _words)

streamed: st.SearchStrategy[Event] = st.one_of(
    st.builds(TextDelta, _words),
    st.builds(TextDelta, _words),
    st.builds(ThinkingDelta, _words),
    st.builds(Text, _words, _answers),
    st.builds(Thinking, _words, _answers),
    st.builds(ToolCall, _ids, _words, _values, _answers),
    st.builds(ToolResult, _ids, st.none(), _values, st.sampled_from([None, True, False])),
)
silent: st.SearchStrategy[Event] = st.one_of(
    st.builds(Session, _ids),
    st.builds(Usage, _words, st.sampled_from([None, 0, 7])),
    st.builds(Retrying, st.just(1), _words),
    st.builds(Permission, _ids, _words),
    st.builds(Suspend, _ids, _words, st.just({})),
    st.builds(Sleep, _ids, st.just("2026-01-02T03:04:05Z")),
    st.builds(Dispatch, _ids, _words),
    st.builds(Handoff, _ids, _words),
    st.builds(Activity, _words),
    st.builds(Note, _words),
    st.builds(Steered, _ids),
)
terminal: st.SearchStrategy[Event] = st.one_of(st.builds(TurnEnd, _words), _failures)
# Most of a run is streamed; a terminal event too early would leave the rest unplayed.
_events: list[st.SearchStrategy[Event]] = [*[streamed] * 8, silent, silent, terminal]
event = st.sampled_from(_events).flatmap(lambda chosen: chosen)
stops = st.sampled_from(
    [
        Reason.INTERRUPTED,
        Reason.KILLED,
        Reason.HANG_UP,
        Reason.TERMINATED,
        Reason.WALL,
        Reason.IDLE,
        Reason.OUTPUT,
        Reason.DRIVER_FAILED,
    ]
)
_said = st.builds(Said, st.lists(event, min_size=1, max_size=6).map(tuple))
_steps: list[st.SearchStrategy[Step]] = [
    *[_said] * 9,
    st.builds(Stop, stops),
    st.just(Grace()),
    st.just(HostNote()),
]
steps = st.sampled_from(_steps).flatmap(lambda chosen: chosen)
endings: st.SearchStrategy[Ending] = st.one_of(
    st.just(Gone((GONE,))),
    st.builds(Gone, st.lists(event, min_size=1, max_size=3).map(tuple)),
    st.builds(Failed, st.sampled_from([Reason.LOST, Reason.HOST_FAILED])),
)
# Short plays find the smallest fault; long ones reach the states that take many steps.
_scripts = st.one_of(st.lists(steps, max_size=3), st.lists(steps, min_size=8, max_size=30))
_limit = st.none() | st.integers(1, 20)
# Most runs have none, so that what stops them is seen as well.
_ceilings = st.just(Ceilings()) | st.builds(
    Ceilings, st.none(), _limit, _limit, _limit, st.just("allow")
)
plays: st.SearchStrategy[Play] = st.builds(Play, _scripts.map(tuple), endings, _ceilings)
