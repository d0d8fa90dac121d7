"""One run, as a state machine. No I/O and no clock.

Rule 1: every change of state happens in `Run._move`, and every legal one is a row of `TRANSITIONS`.
Rule 2: methods return the actions the caller must perform, in order, and perform none. All that
stands before an act in the list must be in the log before the act is performed.
Rule 3: the first reason to end on record is the reason. Only a kill refines an earlier cancel.
Rule 4: `_finish` is the only place that writes a final status, and every path leads there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from capsule_runtime.core import facts
from capsule_runtime.core.actions import (
    Action,
    Burial,
    Bury,
    Interrupt,
    Progress,
    Reply,
    WindDown,
    WriteResult,
    refusal_of,
)
from capsule_runtime.core.conversation import Conversation, Hear, Phase
from capsule_runtime.core.finals import final_status
from capsule_runtime.core.journal import Journal, Moment, Position
from capsule_runtime.core.outcome import OUTCOME_OF, Outcome, Reason
from capsule_runtime.core.states import TRANSITIONS, WITHOUT_GRACE, Cause, IllegalMove, State
from capsule_runtime.events import (
    Dispatch,
    Event,
    Handoff,
    Permission,
    Sleep,
    Suspend,
    TurnEnd,
    TurnFailed,
)
from capsule_runtime.messages import Exit


class Run:
    """Decide what one run's events mean. Feed it; perform what it returns."""

    def __init__(self, run: str, context: str, progress: Progress | None = None) -> None:
        before = progress or Progress()
        self.state = State.STARTING
        self.reason = before.reason
        self.message = before.message
        self.has_terminal = False
        self._context = context
        self._journal = Journal(run, before.position)
        self._said = Conversation(self._journal, context, before)
        self._actions: list[Action] = []
        self._result = before.result
        self._stop_asked = False
        self._kill_started = before.kill_started
        self._hear: Hear = {
            **self._said.hear,
            TurnEnd: self._turn_end,
            TurnFailed: self._turn_failed,
            **dict.fromkeys((Permission, Suspend, Sleep, Dispatch, Handoff), self._refuse),
        }

    @property
    def turns(self) -> int:
        """Return how many model answers were counted, over all attempts."""
        return self._said.turns.counted

    @property
    def tool_calls(self) -> int:
        """Return how many tool calls were counted, over all attempts."""
        return self._said.tool_calls

    @property
    def session(self) -> str | None:
        """Return the harness's own session, as far as it told."""
        return self._said.session

    @property
    def outcome(self) -> Outcome | None:
        """Return how the run ends, as far as that is on record."""
        return None if self.reason is None else OUTCOME_OF[self.reason]

    @property
    def position(self) -> Position:
        """Return where the log ends."""
        return self._journal.position

    @property
    def phase(self) -> Phase:
        """Return what the run waits for while it is silent."""
        return self._said.phase

    def record(self, make: Callable[[int, str, str], facts.Fact], moment: Moment) -> list[Action]:
        """Write a fact of the host's: `Created`, `AttemptStarted`, `Recovered`."""
        self._begin(moment)
        self._journal.fact(make)
        return self._take()

    def launched(self, pid: int, moment: Moment) -> list[Action]:
        """Apply: the harness's process exists."""
        self._begin(moment)
        self._move(Cause.LAUNCHED)
        self._journal.fact(lambda seq, at, run: facts.Launched(seq, at, run, pid))
        return self._take()

    def receive(self, events: Sequence[Event], moment: Moment) -> list[Action]:
        """Apply what the harness said, in order."""
        self._begin(moment)
        self._move(Cause.SPOKE)
        said, hear = self._said, self._hear
        for event in events:
            if self.has_terminal:
                said.note_late(event)
            else:
                said.rate_limited = False
                hear[type(event)](event)
        return self._take()

    def note(self, text: str, moment: Moment) -> list[Action]:
        """Write a note of the host's."""
        self._begin(moment)
        self._said.note(text)
        return self._take()

    def ask_stop(self, reason: Reason, message: str, moment: Moment) -> list[Action]:
        """Apply: somebody, or a limit, asks the run to stop."""
        self._begin(moment)
        was = self.state
        self._move(Cause.STOP_ASKED)
        if was is State.ENDED:
            return []
        if was is State.STOPPING:
            self._ask_again(reason, message)
        else:
            self._settle(reason, message)
            self._record_stop(reason, message)
            if reason in WITHOUT_GRACE and was is State.RUNNING:
                self._start_kill()
            else:
                self._act(Interrupt())
        return self._take()

    def grace_over(self, moment: Moment) -> list[Action]:
        """Apply: the harness was given its grace and is still there.

        If nobody asked it to, it closed its output and lives on: the driver says what that means.
        """
        self._begin(moment)
        if self.state is State.RUNNING:
            self._move(Cause.STOP_ASKED)
            self._said.note("the harness closed its output and did not leave")
        if self.state is State.STOPPING and not self._kill_started:
            self._start_kill()
        return self._take()

    def end(
        self, exit: Exit, burial: Burial, last_words: Sequence[Event], moment: Moment
    ) -> list[Action]:
        """Apply: the tree is empty, all output was read. Write the one final status.

        *last_words* is what the driver made of the exit when output had no terminal event.
        """
        self._begin(moment)
        self._move(Cause.EXITED)
        self._journal.fact(lambda s, at, run: facts.Exited(s, at, run, exit.code, exit.signal))
        self._journal.fact(
            lambda s, at, run: facts.TreeEmpty(
                s, at, run, burial.killed, burial.left, burial.milliseconds
            )
        )
        for event in last_words:
            if not self.has_terminal:
                self._hear[type(event)](event)
        self._settle(Reason.DRIVER_FAILED, "the driver named no terminal event for the exit")
        self._finish()
        return self._take()

    def fail(self, reason: Reason, message: str, moment: Moment) -> list[Action]:
        """Apply: no process was started, or its owner died. Write the one final status."""
        self._begin(moment)
        self._move(Cause.EXITED)
        self._settle(reason, message)
        self._finish()
        return self._take()

    def _finish(self) -> None:
        self._said.note_leftovers()
        assert self.reason is not None
        reason, outcome = self.reason, OUTCOME_OF[self.reason]
        turns, calls, message = self.turns, self.tool_calls, self.message
        self._journal.fact(
            lambda s, at, run: facts.Ended(s, at, run, outcome, reason, message, turns, calls)
        )
        self._said.end_turn()
        state, words = final_status(reason, message, killed=self._kill_started)
        response = self._result if outcome is Outcome.COMPLETED else None
        self._journal.status(state, words, self._context, final=True, response=response)

    def _begin(self, moment: Moment) -> None:
        self._journal.at = moment.at
        self._said.now = moment.now

    def _take(self) -> list[Action]:
        self._actions.extend(self._journal.take())
        actions, self._actions = self._actions, []
        return actions

    def _act(self, action: Action) -> None:
        """Queue *action* behind all that was written so far."""
        self._actions.extend(self._journal.take())
        self._actions.append(action)

    def _move(self, cause: Cause) -> None:
        try:
            self.state = TRANSITIONS[self.state][cause]
        except KeyError:
            raise IllegalMove(f"{cause.name} while {self.state.name}") from None

    def _settle(self, reason: Reason, message: str) -> None:
        if self.reason is None:
            self.reason, self.message = reason, message

    def _ask_again(self, reason: Reason, message: str) -> None:
        """Go straight to the kill when a person asks again, or will not wait for a goodbye."""
        if self.reason is None:  # a harness that closed its output is being killed
            self._settle(reason, message)
            return self._record_stop(reason, message)
        refines = reason is Reason.KILLED and self.outcome is Outcome.CANCELED
        by_person = OUTCOME_OF[reason] is Outcome.CANCELED
        kills = reason is Reason.KILLED or (by_person and self.has_terminal)
        if refines and self.reason is not reason:
            self.reason, self.message = reason, message
        elif self._kill_started or not kills:
            return
        self._record_stop(reason, message)
        if not self._kill_started:
            self._start_kill()

    def _record_stop(self, reason: Reason, message: str) -> None:
        self._stop_asked = True
        self._journal.fact(lambda seq, at, run: facts.StopAsked(seq, at, run, reason, message))

    def _start_kill(self) -> None:
        self._kill_started = True
        self._journal.fact(facts.KillStarted)
        self._act(Bury())

    def _turn_end(self, event: TurnEnd) -> None:
        self._act(WriteResult(event.result))
        self._end_turn(event)
        self._result = event.result
        if not self._stop_asked:
            self._said.fallback(event.result)
        self._settle(Reason.COMPLETED, "")
        self._leave()

    def _turn_failed(self, event: TurnFailed) -> None:
        self._end_turn(event)
        self._settle(Reason(event.kind.value), event.message)
        self._leave()

    def _end_turn(self, event: TurnEnd | TurnFailed) -> None:
        self.has_terminal = True
        self._said.record(event)
        self._said.end_turn()

    def _leave(self) -> None:
        """Let the harness go: it has said its last word."""
        if self.state is not State.ENDED:  # the driver's last words come when it is gone
            self._move(Cause.TERMINAL)
            self._act(WindDown())

    def _refuse(self, event: Permission | Suspend | Sleep | Dispatch | Handoff) -> None:
        self._said.record(event)
        if self.state is not State.ENDED:
            self._act(Reply(event.id, refusal_of(event)))
