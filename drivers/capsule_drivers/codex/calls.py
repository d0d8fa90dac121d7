"""Model calls, in both dialects of Codex: what they used, why they failed, what a retry repeats."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from capsule_runtime import (
    Event,
    FailureKind,
    Remember,
    Text,
    TextDelta,
    Thinking,
    ThinkingDelta,
    Usage,
)

_STATUS_KINDS = {
    401: FailureKind.AUTH,
    402: FailureKind.QUOTA,
    403: FailureKind.AUTH,
    429: FailureKind.RATE_LIMIT,
}
_WORDED = (
    ("reason: content_filter", FailureKind.DECLINED),
    ("reason: max_output_tokens", FailureKind.TRUNCATED),
    ("no rollout found", FailureKind.SESSION_GONE),
    ("Missing environment variable", FailureKind.AUTH),
    ("exceeded your current quota", FailureKind.QUOTA),
    ("Quota exceeded", FailureKind.QUOTA),
    ("usage limit", FailureKind.QUOTA),
    ("context window", FailureKind.CONTEXT_LENGTH),
    ("context_length_exceeded", FailureKind.CONTEXT_LENGTH),
    ("maximum context length", FailureKind.CONTEXT_LENGTH),
    ("exceeds the maximum length", FailureKind.CONTEXT_LENGTH),
    *((f"status{mark} {code}", kind) for code, kind in _STATUS_KINDS.items() for mark in ("", ":")),
)
"""What only the words of an error tell, first match first."""


class Counts(Struct, frozen=True, gc=False):
    """Tokens, of one call or of a whole thread. Cached input is part of the input."""

    inputTokens: int = 0
    cachedInputTokens: int = 0
    cacheWriteInputTokens: int = 0
    outputTokens: int = 0
    reasoningOutputTokens: int = 0

    @property
    def tokens(self) -> int:
        """Return all that was read and written."""
        return self.inputTokens + self.outputTokens

    def beyond(self, before: Counts) -> Counts:
        """Return what this has more than *before*."""
        mine, theirs = msgspec.structs.astuple(self), msgspec.structs.astuple(before)
        return Counts(*(more - less for more, less in zip(mine, theirs, strict=True)))

    @property
    def is_possible(self) -> bool:
        """Whether calls can have used this: nothing was taken back, and cache is within input."""
        fresh = self.inputTokens - self.cachedInputTokens - self.cacheWriteInputTokens
        return fresh >= 0 and min(msgspec.structs.astuple(self)) >= 0


def usage_of(counts: Counts, model: str, call_id: str | None = None) -> Usage:
    """Return *counts*, which is possible, in our terms: cached input stands beside the input."""
    cached, written = counts.cachedInputTokens, counts.cacheWriteInputTokens
    return Usage(
        model,
        counts.inputTokens - cached - written,
        counts.outputTokens,
        cached,
        written,
        0 if written else None,  # there is no cache for an hour
        counts.reasoningOutputTokens,
        call_id=call_id,
        scope="call" if call_id else "total",
    )


class Baseline(Struct, frozen=True):
    """What a thread had used in all. It is kept: a resumed thread goes on counting."""

    thread: str
    total: Counts

    def kept(self) -> Remember:
        """Return what to remember."""
        return Remember(msgspec.json.encode(self))


def baseline_of(memory: bytes | None, thread: str | None) -> Baseline | None:
    """Return what *memory* says that *thread* had used; None if it says nothing of it."""
    try:
        kept = msgspec.json.decode(memory or b"", type=Baseline)
    except msgspec.DecodeError:
        return None
    return kept if kept.thread == thread else None


def named(model: str | None) -> str:
    """Return how prices call the *model*."""
    if model is None:
        return "unknown:unknown"
    return model if ":" in model else f"openai:{model}"


def kind_of_words(message: str) -> FailureKind:
    """Return the kind of failure that *message* speaks of."""
    return next((kind for words, kind in _WORDED if words in message), FailureKind.OTHER)


def kind_of_status(status: int | None) -> FailureKind:
    """Return the kind of failure that an HTTP *status*, if there is one, stands for."""
    return FailureKind.OTHER if status is None else _STATUS_KINDS.get(status, FailureKind.OTHER)


def retry_of(message: str) -> tuple[int | None, int | None] | None:
    """Return which retry *message* announces, and of how many, as far as it says; None if none."""
    words = message.split(maxsplit=2)
    if not words or words[0] != "Reconnecting...":
        return None
    first, _, last = (words[1] if len(words) > 1 else "").partition("/")
    return int(first) if first.isdecimal() else None, int(last) if last.isdecimal() else None


class Repeats:
    """Hold back what a retried model call says again. A model call that succeeded is over."""

    def __init__(self) -> None:
        self._said: list[tuple[type[Event], str]] = []
        self._ahead: list[tuple[type[Event], str]] = []
        """What the retry under way may repeat."""
        self.retries = 0
        self._heard: set[int] = set()
        self._streaming: type[TextDelta | ThinkingDelta] = TextDelta
        self._streamed: list[str] = []
        """What was streamed of a text that is not complete, of that kind."""
        self._alike: list[str] | None = None
        """What it may turn out to repeat; None before its first fragment."""
        self._held = 0
        """How many characters of it, which all of those begin with, are held back."""

    def over(self) -> None:
        """Forget all: what comes next is new."""
        self._said.clear()
        self._ahead.clear()
        self._begin_text()
        self.retries = 0

    def retried(self, number: int | None, answer: str | None = None) -> list[Event]:
        """Begin the call once more, for the *number*-th time if that was told.

        What was cut off of *answer* is all there is of its text.
        """
        self.retries = number or self.retries + 1
        cut_off = "".join(self._streamed)
        whole = Text if self._streaming is TextDelta else Thinking
        said = self.whole(whole, cut_off, answer) if cut_off else []
        self._ahead = list(self._said)
        self._begin_text()
        return said

    def is_old(self, kind: type[Text | Thinking], id: str, text: str) -> bool:
        """Whether the complete *text* of the item *id* came before: a line twice, or a retry."""
        line = hash((kind, id, text))
        if line in self._heard:
            if not self._streamed:
                self._begin_text()
            return True
        if id:
            self._heard.add(line)
        return False

    def delta(self, kind: type[TextDelta | ThinkingDelta], text: str) -> list[Event]:
        """Return what is new of a fragment."""
        if kind is not self._streaming:
            self._begin_text()  # the end of the other one was lost
            self._streaming = kind
        if not self._streamed:
            if self._alike is None:
                whole = Text if kind is TextDelta else Thinking
                self._alike = [words for said, words in self._ahead if said is whole]
            alike = [words for words in self._alike if words.startswith(text, self._held)]
            if alike:
                self._alike, self._held = alike, self._held + len(text)
                return []
            text = self._held_back() + text
        self._streamed.append(text)
        return [kind(text)]

    def whole(self, kind: type[Text | Thinking], text: str, answer: str | None) -> list[Event]:
        """Return a complete text, unless it is what the call had said before."""
        fragment = TextDelta if kind is Text else ThinkingDelta
        held = self._held_back() if self._streaming is fragment else ""
        is_new = bool(self._streamed) or (kind, text) not in self._ahead
        self._begin_text()
        if not is_new:
            self._ahead.remove((kind, text))
            return []
        self._said.append((kind, text))
        return [*([fragment(held)] if held else []), kind(text, answer)]

    def _begin_text(self) -> None:
        self._streamed.clear()
        self._alike, self._held = None, 0

    def _held_back(self) -> str:
        """Return what is held back, and hold it no longer."""
        held = self._alike[0][: self._held] if self._alike else ""
        self._held = 0
        return held
