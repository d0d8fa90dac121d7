"""When a run of Qwen Code is over: the end of a turn is its end if no words wait.

Words that it is steered with wait here until its turn is over, and are then its next task: in a queue
of its own they would be answered after a stop too.
"""

from __future__ import annotations

from collections.abc import Sequence

from capsule_drivers.exits import UNREAD_END, failure_of, last_words
from capsule_drivers.qwen_lines import Again, Result
from capsule_drivers.reading import json_line, kind_of_error
from capsule_drivers.token_counts import count_of
from capsule_runtime import (
    Event,
    Exit,
    FailureKind,
    Note,
    Retrying,
    Said,
    Send,
    Steered,
    TurnEnd,
    TurnFailed,
)

_CANCELLED = "Operation cancelled."
_TOO_MANY_TURNS = 53


class Turns:
    """Decide which end of a turn is the end of the run, which has one, and what it does next."""

    def __init__(self) -> None:
        self._waiting: list[tuple[str, str]] = []
        """Words that it is to be steered with, and their ids."""
        self._given: str | None = None
        """The id of words that it was given and has not begun to answer."""
        self._last: TurnEnd | TurnFailed | None = None
        """How the last turn ended."""
        self._is_over = self._is_stopping = False

    @property
    def has_next(self) -> bool:
        """Whether words wait that will be answered."""
        return bool(self._waiting) and not self._is_stopping

    def wait_for(self, id: str, text: str) -> None:
        """Apply: somebody has words for it."""
        self._waiting.append((id, text))

    def stop(self) -> None:
        """Apply: it was asked to stop."""
        self._is_stopping = True

    def taken(self) -> Sequence[Event]:
        """Tell that the words that it was given are in the conversation, once."""
        given, self._given = self._given, None
        return () if given is None else [Steered(given)]

    def next_words(self) -> Sequence[Said]:
        """Hand over the words that waited longest."""
        if not self.has_next:
            return ()
        self._given, text = self._waiting.pop(0)
        return [Send(prompt(text))]

    def ended(self, result: Result | None) -> Sequence[Said]:
        """Return what it means that a turn ended in *result*, or in one that cannot be read."""
        self._last = end = UNREAD_END if result is None else _end_of(result)
        how = end.message if isinstance(end, TurnFailed) else "done"
        if self._is_over:
            return [Note(f"a turn ended ({how}) after the last one")]
        if self.has_next:
            return [Note(f"a turn ended ({how}); words that waited are next"), *self.next_words()]
        self._is_over = True
        return [end]

    def left(self, exit: Exit) -> TurnEnd | TurnFailed:
        """Return what it means that it left by *exit* before the run was over."""
        self._is_over = True
        if self._given and self._last and (exit.code == 0 or self._is_stopping):
            return self._last  # it began no turn after that one
        if "No saved session found" in exit.stderr_tail.decode("utf-8", "replace"):
            return TurnFailed(FailureKind.SESSION_GONE, last_words(exit))
        if exit.code == _TOO_MANY_TURNS:
            words = last_words(exit) or "it took as many turns as it may"
            return TurnFailed(FailureKind.MAX_TURNS, words)
        return failure_of(exit)


def prompt(text: str) -> bytes:
    """Return the line that gives it the task *text*."""
    message = {"role": "user", "content": text}
    return json_line(
        {"type": "user", "session_id": "", "message": message, "parent_tool_use_id": None}
    )


def retrying(again: Again) -> Sequence[Event]:
    """Return what it means that a call is tried again: it says so before the delay, and after it."""
    attempt, delay = count_of(again.attempt), count_of(again.delay_ms)
    if attempt is None:
        return ()
    reason = again.reason if isinstance(again.reason, str) else "unknown"
    seconds = None if delay is None else delay / 1000
    return [Retrying(attempt, reason, count_of(again.max_retries), seconds)]


def _end_of(result: Result) -> TurnEnd | TurnFailed:
    if not result.is_error:
        return TurnEnd(result.result or "")
    why = result.error.message if result.error else result.result or result.subtype
    if why == _CANCELLED:
        return TurnFailed(FailureKind.OTHER, "the turn was interrupted")
    return TurnFailed(kind_of_error(why), why)
