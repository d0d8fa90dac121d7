"""How a run is stopped: by whom first, who may ask again, and when asking turns into killing."""

from __future__ import annotations

from capsule_runtime.core import facts
from capsule_runtime.core.actions import Action, Bury, Interrupt, Progress
from capsule_runtime.core.journal import Journal
from capsule_runtime.core.outcome import OUTCOME_OF, Outcome, Reason
from capsule_runtime.core.states import TRANSITIONS, WITHOUT_GRACE, Cause, IllegalMove, State
from capsule_runtime.messages import Refused

NOT_WORKING = "E-USE-004"


class Ladder:
    """The state of a run and its way to the end. `Run` climbs it."""

    def __init__(self, journal: Journal, before: Progress) -> None:
        self.state = State.STARTING
        self.reason = before.reason
        self.message = before.message
        self.has_terminal = False
        self._journal = journal
        self._actions: list[Action] = []
        self._stop_asked = False
        self._kill_started = before.kill_started

    @property
    def outcome(self) -> Outcome | None:
        """Return how the run ends, as far as that is on record."""
        return None if self.reason is None else OUTCOME_OF[self.reason]

    @property
    def deafness(self) -> Refused | None:
        """Return why nobody can hand words to the harness now; None if somebody can."""
        if self.state is State.RUNNING and not self.has_terminal:
            return None
        how = "has not begun" if self.state is State.STARTING else "is over or being stopped"
        return Refused(NOT_WORKING, f"{self._journal.run} {how}, so nobody can hand it words")

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

    def _stop(self, reason: Reason, message: str) -> None:
        was = self.state
        self._move(Cause.STOP_ASKED)
        if was is State.STOPPING:
            self._ask_again(reason, message)
        elif was is not State.ENDED:
            self._settle(reason, message)
            self._record_stop(reason, message)
            if reason in WITHOUT_GRACE and was is State.RUNNING:
                self._start_kill()
            else:
                self._act(Interrupt())

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
