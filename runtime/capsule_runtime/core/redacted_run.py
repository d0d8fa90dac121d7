"""A run with secrets: whatever enters it, from its harness or its host, leaves them outside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

from msgspec.structs import replace

from capsule_runtime.core import facts
from capsule_runtime.core.actions import Action, Burial, Progress, Reply
from capsule_runtime.core.grants import Policy
from capsule_runtime.core.journal import Moment
from capsule_runtime.core.ledger import Ledger
from capsule_runtime.core.network_facts import Egress
from capsule_runtime.core.outcome import Reason
from capsule_runtime.core.redacted_events import RedactedEvents
from capsule_runtime.core.redactor import Redactor
from capsule_runtime.core.run import Run
from capsule_runtime.events import Event
from capsule_runtime.messages import Exit, Message, Refused, Send


class RedactedRun(Run):
    """Decide as `Run` does, on the same events without secrets."""

    def __init__(
        self,
        redactor: Redactor,
        run: str,
        context: str,
        progress: Progress | None = None,
        ledger: Ledger | None = None,
        on_permission: Policy = "deny",
    ) -> None:
        super().__init__(run, context, progress, ledger, on_permission)
        self._redactor = redactor
        self._events = RedactedEvents(redactor)

    def record(self, make: Callable[[int, str, str], facts.Fact], moment: Moment) -> list[Action]:
        return super().record(lambda seq, at, run: self._fact(make(seq, at, run)), moment)

    def receive(self, events: Sequence[Event], moment: Moment) -> list[Action]:
        return super().receive(self._events.receive(events), moment)

    def note(self, text: str, moment: Moment) -> list[Action]:
        return super().note(self._redactor.text(text), moment)

    def ask_stop(self, reason: Reason, message: str, moment: Moment) -> list[Action]:
        return super().ask_stop(reason, self._redactor.text(message), moment)

    def steer(self, id: str, text: str, line: Send | Refused, moment: Moment) -> list[Action]:
        return super().steer(id, self._redactor.text(text), line, moment)

    def fail(self, reason: Reason, message: str, moment: Moment) -> list[Action]:
        return super().fail(reason, self._redactor.text(message), moment)

    def end(
        self, exit: Exit, burial: Burial, last_words: Sequence[Event], moment: Moment
    ) -> list[Action]:
        words = [*self._events.receive(last_words), *self._events.flush()]
        return super().end(exit, burial, words, moment)

    def _act(self, action: Action) -> None:
        if isinstance(action, Reply) and action.id in self._events.asked:
            action = replace(action, id=self._events.asked[action.id])
        super()._act(action)

    def _fact(self, fact: facts.Fact) -> facts.Fact:
        """Return a *fact* of the host's; its words are redacted, what the runtime reads is not.

        Names of files are read: a warning of a hook must be found again when changes are applied.
        """
        redactor = self._redactor
        match fact:
            case facts.Created():
                return replace(fact, message=cast("Message", redactor.struct(fact.message)))
            case facts.AttemptStarted():
                return replace(fact, argv=tuple(map(redactor.text, fact.argv)))
            case facts.Remembered():
                return replace(fact, data=redactor.bytes(fact.data))
            case Egress():
                place, message = redactor.text(fact.place), redactor.text(fact.message)
                return replace(fact, place=place, message=message)
            case _:
                return fact
