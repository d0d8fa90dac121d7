"""What a harness says, without the secrets of its run.

Fragments are streams: a client joins them, so a secret must not come out of several either. What
may be the beginning of one waits for the next fragment of its stream, and while it waits only
events pass that are no words and ask for nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

from capsule_runtime.core.redactor import Redactor
from capsule_runtime.events import (
    Activity,
    Event,
    Note,
    Request,
    Retrying,
    Session,
    Steered,
    Terminal,
    TextDelta,
    ThinkingDelta,
    TurnFailed,
    Usage,
)

_Delta = TextDelta | ThinkingDelta
_PASSING = frozenset[type]({Usage, Activity, Retrying, Session, Steered, Note})
"""Events that may come between two fragments without ending anything."""


class RedactedEvents:
    """The events of one attempt."""

    def __init__(self, redactor: Redactor) -> None:
        self.asked: dict[str, str] = {}
        """The ids of requests that had to be redacted, as their harness knows them."""
        self._redactor = redactor
        self._streams = {kind: redactor.stream() for kind in (TextDelta, ThinkingDelta)}
        self._activity = redactor.stream()
        self._is_over = False

    def receive(self, events: Sequence[Event]) -> list[Event]:
        """Return what is shown of *events*, in their order."""
        shown = list[Event]()
        for event in events:
            if isinstance(event, _Delta):
                shown += self._delta(event)
            else:
                shown += () if type(event) in _PASSING else self.flush()
                shown.append(self._whole(event))
        return shown

    def flush(self) -> Iterator[Event]:
        """Yield what was held back."""
        for kind, stream in self._streams.items():
            if rest := stream.flush():
                yield kind(rest)

    def _delta(self, event: _Delta) -> Iterator[Event]:
        stream = self._streams[type(event)]
        text = stream.feed(event.text)
        if self._is_over:  # each late fragment is a note of its own
            text += stream.flush()
        if text or not event.text:
            yield type(event)(text)

    def _whole(self, event: Event) -> Event:
        # Drivers keep a piece of what is long, so these may end in a piece of a secret.
        if type(event) is Note:
            return Note(self._redactor.cut_text(event.text))
        if type(event) is Activity:
            shown, rest = self._activity.feed(event.text), self._activity.flush()
            return Activity(shown + self._redactor.cut_text(rest))
        if type(event) is TurnFailed:
            event = TurnFailed(event.kind, self._redactor.cut_text(event.message))
        clean = cast("Event", self._redactor.struct(event))
        if isinstance(event, Request) and clean is not event:
            self.asked[cast("Request", clean).id] = event.id
        self._is_over = self._is_over or isinstance(event, Terminal)
        return clean
