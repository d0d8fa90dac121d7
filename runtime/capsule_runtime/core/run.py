"""One run, as a state machine. No I/O and no clock.

Rule 1: every change of state happens in `Ladder._move`, and every legal one is a row of `TRANSITIONS`.
Rule 2: methods return the actions the caller must perform, in order, and perform none. All that
stands before an act in the list must be in the log before the act is performed.
Rule 3: the first reason to end on record is the reason. Only a kill refines an earlier cancel.
Rule 4: `_finish` is the only place that writes a final status, and every path leads there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, assert_never, get_args

from capsule_runtime.core import facts
from capsule_runtime.core.actions import (
    Action,
    Burial,
    HandOver,
    Progress,
    Reply,
    TopUp,
    WindDown,
    WriteResult,
)
from capsule_runtime.core.answering import write_answer
from capsule_runtime.core.conversation import Conversation, Hear, Phase
from capsule_runtime.core.day_share import Share
from capsule_runtime.core.endings import write_end, write_exit
from capsule_runtime.core.finals import final_status
from capsule_runtime.core.grants import Policy
from capsule_runtime.core.journal import Journal, Moment, Position, day_of
from capsule_runtime.core.ladder import Ladder
from capsule_runtime.core.ledger import Ledger
from capsule_runtime.core.outcome import Outcome, Reason
from capsule_runtime.core.permissions import tool_of
from capsule_runtime.core.purse import Purse, TooMuch
from capsule_runtime.core.states import Cause, State
from capsule_runtime.events import (
    Event,
    Permission,
    Request,
    Text,
    Thinking,
    ToolCall,
    TurnEnd,
    TurnFailed,
    Usage,
)
from capsule_runtime.messages import Exit, Refused, Send

SPENDING: tuple[type[Event], ...] = (Usage, Text, Thinking, ToolCall)
"""What is entered in the ledger, and may be too much."""


class Run(Ladder):
    """Decide what one run's events mean. Feed it; perform what it returns."""

    def __init__(
        self,
        run: str,
        context: str,
        progress: Progress | None = None,
        ledger: Ledger | None = None,
        on_permission: Policy = "deny",
    ) -> None:
        before = progress or Progress()
        super().__init__(Journal(run, before.position), before)
        self._context = context
        self._said = Conversation(self._journal, context, before, ledger)
        self._purse = Purse(self._said.ledger)
        self._result = before.result
        self._on_permission: Policy = on_permission
        hear, weigh = self._said.hear(), self._hear_and_weigh
        self._hear: Hear = {
            **hear,
            **{kind: partial(weigh, hear[kind]) for kind in SPENDING},
            TurnEnd: self._turn_end,
            TurnFailed: self._turn_failed,
            **dict.fromkeys(get_args(Request), self._answer),
        }

    @property
    def ledger(self) -> Ledger:
        """Return the account of the run."""
        return self._said.ledger

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
        self._stop(reason, message)
        return self._take()

    def steer(self, id: str, text: str, line: Send | Refused, moment: Moment) -> list[Action]:
        """Apply: somebody has words for the harness, and *line* hands them over, or says why not."""
        self._begin(moment)
        refused = None if isinstance(line, Send) else line
        if self.state is not State.ENDED:  # nothing follows the final status
            self._journal.fact(
                lambda seq, at, run: facts.SteerAsked(seq, at, run, id, text, refused)
            )
        if isinstance(line, Send):
            self._said.steer(id)
            self._act(HandOver(line.data))
        return self._take()

    def share(self, share: Share, moment: Moment) -> list[Action]:
        """Apply: the run now holds *share* of the day."""
        self._begin(moment)
        self._purse.hold(share)
        if self.state is State.RUNNING:
            self._weigh()
        return self._take()

    def grace_over(self, moment: Moment) -> list[Action]:
        """Apply: the harness had its grace and is still there; it may just have closed its output."""
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
        write_exit(self._journal, exit, burial)
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
        write_end(self._journal, self.reason, self.message, self.ledger.settled())
        self._said.end_turn()
        state, words = final_status(self.reason, self.message, killed=self._kill_started)
        response = self._result if self.outcome is Outcome.COMPLETED else None
        self._journal.status(state, words, self._context, final=True, response=response)

    def _begin(self, moment: Moment) -> None:
        self._journal.at = moment.at
        self._said.now = moment.now

    def _hear_and_weigh(self, hear: Callable[[Any], None], event: Event) -> None:
        hear(event)
        if self.reason is None and self.ledger.is_bounded:
            self._weigh()

    def _weigh(self) -> None:
        """Stop if too much was spent, or see to it that more may be."""
        verdict = self._purse.verdict(day_of(self._journal.at))
        match verdict:
            case TooMuch(reason, message) if self.state is State.ENDED:
                # It stands in the driver's last words: there is nobody left to stop.
                self._settle(reason, message)
                self._record_stop(reason, message)
            case TooMuch(reason, message):
                self._stop(reason, message)
            case TopUp() as ask if self.state is State.RUNNING:
                self._act(ask)
            case TopUp() | None:
                pass
            case _:
                assert_never(verdict)

    def _turn_end(self, event: TurnEnd) -> None:
        self.ledger.finish()
        if self.reason is None and self.ledger.is_bounded:
            self._weigh()
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

    def _answer(self, event: Request) -> None:
        self._said.record(event)
        if self.state is not State.ENDED:
            self._act(Reply(event.id, write_answer(self._journal, event, self._on_permission)))
        if isinstance(event, Permission) and self._on_permission == "fail":
            self._stop(Reason.PERMISSION, f"the harness asked whether it may use {tool_of(event)}")
