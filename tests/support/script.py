"""Play a run from a test: say, stop, end; then read what came out, in short."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import assert_never

from capsule_runtime import (
    ArtifactFrame,
    Event,
    Exit,
    FailureKind,
    Frame,
    Reason,
    Refused,
    Send,
    StatusFrame,
    TextFrame,
    ThinkingFrame,
    TurnFailed,
)
from capsule_runtime.core.actions import Action, Burial, Progress
from capsule_runtime.core.day_share import Share
from capsule_runtime.core.facts import Fact
from capsule_runtime.core.grants import Policy
from capsule_runtime.core.journal import Append, Moment
from capsule_runtime.core.ledger import Ledger
from capsule_runtime.core.run import Run

RUN = "run_0192f0c1a2b37c4d8e9fa0b1c2d3e4f5"
CONTEXT = "talk"
AT = "2026-01-02T03:04:05.678Z"
PID = 4242
GONE = TurnFailed(FailureKind.INDETERMINATE, "it said nothing")
"""What a driver makes of an exit that no terminal event announced."""

Short = tuple[object, ...]
"""A frame without its numbers."""


def at(now: float = 0.0) -> Moment:
    """Return the moment *now*, in monotonic seconds; the date never changes."""
    return Moment(AT, now)


class Script:
    """A run that a test talks to. `actions` holds all that it returned, in order."""

    def __init__(
        self,
        progress: Progress | None = None,
        *,
        launched: bool = True,
        ledger: Ledger | None = None,
        on_permission: Policy = "deny",
    ) -> None:
        self.run = Run(RUN, CONTEXT, progress, ledger, on_permission)
        self.actions: list[Action] = []
        self.now = 0.0
        if launched:
            self.launched()

    @property
    def entries(self) -> list[Frame | Fact]:
        """Return every entry written so far."""
        return entries_of(self.actions)

    @property
    def frames(self) -> list[Frame]:
        """Return every frame written so far."""
        return [entry for entry in self.entries if isinstance(entry, Frame)]

    @property
    def facts(self) -> list[Fact]:
        """Return every fact written so far."""
        return [entry for entry in self.entries if isinstance(entry, Fact)]

    @property
    def asked(self) -> list[Action]:
        """Return what the run asked for beside writing, in order."""
        return [action for action in self.actions if not isinstance(action, Append)]

    @property
    def shown(self) -> list[Short]:
        """Return every frame in short."""
        return [short(frame) for frame in self.frames]

    def launched(self) -> list[Action]:
        """Start the harness."""
        return self._keep(self.run.launched(PID, self._moment()))

    def say(self, *events: Event) -> list[Action]:
        """Let the harness say *events* in one breath."""
        return self._keep(self.run.receive(events, self._moment()))

    def stop(self, reason: Reason, message: str = "") -> list[Action]:
        """Ask the run to stop."""
        return self._keep(self.run.ask_stop(reason, message, self._moment()))

    def steer(self, id: str, text: str, line: Send | Refused) -> list[Action]:
        """Have words for the working harness, which *line* hands over or refuses."""
        return self._keep(self.run.steer(id, text, line, self._moment()))

    def share(self, share: Share) -> list[Action]:
        """Let the run hold *share* of the day."""
        return self._keep(self.run.share(share, self._moment()))

    def note(self, text: str) -> list[Action]:
        """Note something of the host's."""
        return self._keep(self.run.note(text, self._moment()))

    def grace_over(self) -> list[Action]:
        """Let the grace pass."""
        return self._keep(self.run.grace_over(self._moment()))

    def end(self, *last_words: Event, exit: Exit | None = None, killed: int = 0) -> list[Action]:
        """Let the harness exit; *last_words* are the driver's."""
        words: Sequence[Event] = last_words or (GONE,)
        burial = Burial(killed, 0, 3)
        return self._keep(self.run.end(exit or Exit(0, None), burial, words, self._moment()))

    def fail(self, reason: Reason, message: str = "") -> list[Action]:
        """End the run without a process."""
        return self._keep(self.run.fail(reason, message, self._moment()))

    def record(self, make: Callable[[int, str, str], Fact]) -> list[Action]:
        """Write a fact of the host's."""
        return self._keep(self.run.record(make, self._moment()))

    def _moment(self) -> Moment:
        return at(self.now)

    def _keep(self, actions: list[Action]) -> list[Action]:
        self.actions += actions
        return actions


def entries_of(actions: Iterable[Action]) -> list[Frame | Fact]:
    """Return what *actions* write, one by one."""
    return [entry for action in actions if isinstance(action, Append) for entry in action.entries]


def short(frame: Frame) -> Short:
    """Return *frame* without the numbers that every frame has."""
    match frame:
        case StatusFrame(state="working"):
            return ("working", frame.message)
        case StatusFrame():
            return (frame.state, frame.message, frame.response)
        case TextFrame():
            return ("text", frame.text, frame.final)
        case ThinkingFrame():
            return ("thinking", frame.text)
        case ArtifactFrame():
            return ("artifact", frame.tool_call_id)
        case _:
            assert_never(frame)


def is_sound(append: Append) -> bool:
    """Whether *append* holds what it says: entries counted right, and the facts among them."""
    numbers = [entry.seq for entry in append.entries]
    facts = [entry for entry in append.entries if not isinstance(entry, Frame)]
    return numbers == list(range(append.first, append.last + 1)) and list(append.facts) == facts
