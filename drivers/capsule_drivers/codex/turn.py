"""One turn of one thread, as the app-server tells of it.

Threads other than ours are those of the agent's own agents: what they use counts, what they say is
their business.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from capsule_drivers.codex import wire
from capsule_drivers.codex.calls import Baseline, Counts, Repeats, named, retry_of, usage_of
from capsule_drivers.codex.items import Item, Tools, paragraphs
from capsule_drivers.exits import UNREAD_END
from capsule_runtime import (
    Event,
    FailureKind,
    Note,
    Retrying,
    Said,
    Session,
    Steered,
    Text,
    TextDelta,
    Thinking,
    ThinkingDelta,
    TurnEnd,
    TurnFailed,
    Usage,
)

_NO_TOOLS = frozenset(
    {
        "contextCompaction",
        "enteredReviewMode",
        "exitedReviewMode",
        "hookPrompt",
        "plan",
        "subAgentActivity",
    }
)
"""Items that are neither words nor tools."""
_USED = b"thread/tokenUsage/updated"
_NOTHING: Sequence[Said] = ()


class Turn:
    """What was heard of the turn that is our task."""

    def __init__(self, baseline: Baseline | None = None, *, is_resumed: bool = False) -> None:
        """*baseline* is what the thread had used before, if it *is_resumed*."""
        self.thread: str = ""
        self.id = ""
        self.model = named(None)
        self.last_error = ""
        self.tools = Tools()
        self.steers: set[str] = set()
        """The ids of the words it was steered with and has not taken."""
        self.is_over = False
        """Whether its terminal event was given."""
        self._is_announced = False
        self._result = ""
        self._is_resumed = is_resumed
        self._models: dict[str, str] = {}
        """Those of the other threads."""
        self._totals: dict[str, Counts] = {}
        self._counted: set[str] = set()
        """The ids of the calls that were told of."""
        if baseline is not None:
            self._totals[baseline.thread] = baseline.total
        self._repeats = Repeats()
        self._has_spoken = False
        """Whether the model call under way has said something, and so has used something."""
        self._complete: set[str] = set()
        """The ids of texts of which all was heard."""
        self._answers = 1
        self._heard: dict[bytes, Callable[[wire.Params], Sequence[Said]]] = {
            b"item/agentMessage/delta": lambda it: self._fragment(TextDelta, it),
            b"item/reasoning/summaryTextDelta": lambda it: self._fragment(ThinkingDelta, it),
            b"item/reasoning/textDelta": lambda it: self._fragment(ThinkingDelta, it),
            b"item/reasoning/summaryPartAdded": self._next_paragraph,
            b"item/started": self._item_started,
            b"item/completed": self._item_completed,
            _USED: self._used,
            b"error": self._failed,
            b"warning": lambda it: [Note(it.message)],
            b"configWarning": lambda it: [Note(it.summary)],
            b"deprecationNotice": lambda it: [Note(it.summary)],
            b"model/rerouted": self._rerouted,
            b"thread/started": lambda it: self.opened(it.thread.id, it.thread.model),
            b"turn/started": lambda it: self._begun(it.turn.id),
            b"turn/completed": lambda it: self._over(it.turn),
        }

    def heeds(self, method: bytes) -> bool:
        """Whether the notification *method* means anything here."""
        return method in self._heard

    def notified(self, method: bytes, line: bytes) -> Sequence[Said]:
        """Return what the *line* of a notification that is heeded means.

        Raises:
            msgspec.DecodeError, RecursionError: it cannot be read.
        """
        params = wire.notifications.decode(line).params
        if params.threadId != self.thread and params.threadId and method != _USED:
            if self.thread:
                return _NOTHING
            self.thread = params.threadId
        if not self.id and method.startswith(b"item/"):
            self.id = params.turnId  # the line that began it was lost
        return self._heard[method](params)

    def opened(self, thread: str, model: str | None) -> Sequence[Said]:
        """Apply: the thread is ready, with its *model* if that was told."""
        if self.thread and self.thread != thread:
            self._models[thread] = named(model)
            return _NOTHING
        if model:
            self.model = named(model)
        if self._is_announced:
            return _NOTHING
        self.thread, self._is_announced = thread, True
        return [Session(thread, self.model if model else None)]

    def cut(self) -> list[Event]:
        """Return what is known of a call that ended and told no usage: that it used something."""
        has_spoken, self._has_spoken = self._has_spoken, False
        return [Usage(self.model)] if has_spoken else []

    @property
    def _answer(self) -> str:
        """The model answer under way. Each ends with what it used, so counting those counts it."""
        return f"{self.id}:{self._answers}"

    def _begun(self, id: str) -> Sequence[Said]:
        self.id = self.id or id
        return _NOTHING

    def _fragment(
        self, kind: type[TextDelta | ThinkingDelta], params: wire.Params, text: str | None = None
    ) -> Sequence[Said]:
        # One of a text that is complete is a line that came again.
        self._has_spoken = self._has_spoken or params.itemId not in self._complete
        return self._repeats.delta(kind, params.delta if text is None else text)

    def _next_paragraph(self, params: wire.Params) -> Sequence[Said]:
        return self._fragment(ThinkingDelta, params, "\n\n") if params.summaryIndex else _NOTHING

    def _item_started(self, params: wire.Params) -> Sequence[Said]:
        item = params.item
        if item.type in ("agentMessage", "reasoning") or item.type in _NO_TOOLS:
            return _NOTHING
        if item.type == "userMessage":
            return self._taken(item)
        self._repeats.over()  # a retry is told of the tool, and goes on from there
        return self.tools.started(item, self._answer)

    def _item_completed(self, params: wire.Params) -> Sequence[Said]:
        item = params.item
        match item.type:
            case "agentMessage":
                return self._whole(Text, item.id, item.text)
            case "reasoning":
                words = paragraphs(item.summary) or paragraphs(item.content)
                return self._whole(Thinking, item.id, words)
            case "userMessage":
                return self._taken(item)
            case type if type in _NO_TOOLS:
                return _NOTHING
            case _:
                return self.tools.completed(item, self._answer)

    def _whole(self, kind: type[Text | Thinking], id: str, text: str) -> Sequence[Said]:
        if self._repeats.is_old(kind, id, text):
            return _NOTHING
        if kind is Text:
            self._result = text
        if not text:
            return _NOTHING
        self._has_spoken = True
        self._complete.add(id)
        return self._repeats.whole(kind, text, self._answer)

    def _taken(self, item: Item) -> Sequence[Said]:
        if item.clientId not in self.steers:
            return _NOTHING
        self.steers.discard(item.clientId)
        return [Steered(item.clientId)]

    def _used(self, params: wire.Params) -> Sequence[Said]:
        """Return what a model call used: what its thread's total has grown by."""
        total, thread = params.tokenUsage.total, params.threadId
        call_id = f"{thread}:{total.tokens}"
        before = self._totals.get(thread) or self._before(params.tokenUsage)
        call = total.beyond(before)
        if call == Counts() or call_id in self._counted:
            return _NOTHING
        kept: list[Said] = []
        if total.tokens >= before.tokens:  # else the thread was cut
            self._totals[thread] = total
            # Now, not at the end: whoever is killed has no end.
            kept = [Baseline(thread, total).kept()] if thread == self.thread else []
        self._counted.add(call_id)
        if not self.id:
            return kept  # on resume it says what was used before
        if thread == self.thread:
            self._answers += 1
            self._has_spoken = False
            self._repeats.over()
        call = call if call.is_possible else params.tokenUsage.last
        model = self._models.get(thread, self.model)
        if not call.is_possible or call == Counts():
            return [Usage(model), *kept]
        return [usage_of(call, model, call_id), *kept]

    def _before(self, used: wire.TokenUsage) -> Counts:
        """Return what a thread of which nothing was heard had used before the call it tells of."""
        if not self._is_resumed or used.last == Counts():
            return Counts()  # it began in this run
        before = used.total.beyond(used.last)
        return before if before.is_possible else Counts()

    def _failed(self, params: wire.Params) -> Sequence[Said]:
        error = params.error
        if not params.willRetry:
            self.last_error = error.message  # the end of the turn says it again
            return _NOTHING
        number, most = retry_of(error.message) or (None, None)
        reason = error.additionalDetails or error.message
        said = [*self._repeats.retried(number, self._answer), *self.cut()]
        return [*said, Retrying(self._repeats.retries, reason, most)]

    def _rerouted(self, params: wire.Params) -> Sequence[Said]:
        self.model = named(params.toModel)
        return _NOTHING

    def unread_end(self) -> Sequence[Said]:
        """Apply: the turn is over, and the line that says so cannot be read."""
        if self.is_over:
            return _NOTHING
        self.is_over = True
        return [*self.cut(), *self.tools.close(), UNREAD_END]

    def _over(self, turn: wire.TurnState) -> Sequence[Said]:
        if turn.id != self.id or self.is_over:
            return _NOTHING
        self.is_over = True
        before = [*self.cut(), *self.tools.close()]
        if turn.status == "completed":
            return [*before, TurnEnd(self._result or turn.words)]
        if turn.status == "interrupted":
            return [*before, TurnFailed(FailureKind.OTHER, "the turn was interrupted")]
        error = turn.error or wire.Failure(self.last_error or "the turn failed")
        return [*before, TurnFailed(error.kind, error.message)]
