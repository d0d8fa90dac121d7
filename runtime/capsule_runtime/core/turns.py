"""Count model answers.

A turn opens when an event's `answer` id changes, where the harness gives one; else at the first
complete text or tool call since the start or the last tool result. A tool result closes it. More
of the same answer after a tool result reopens its turn and counts nothing.
"""

from __future__ import annotations


class Turns:
    """The turn counter of one run. It goes on over attempts."""

    def __init__(self, counted: int = 0) -> None:
        self.counted = counted
        self._open = False
        self._answer: str | None = None

    @property
    def current(self) -> int:
        """Return the open turn's number, else the number a turn opening now would take."""
        return self.counted if self._open else self.counted + 1

    def saw_whole(self, answer: str | None) -> None:
        """Count a complete text or tool call, of model answer *answer* if that is known."""
        if answer is not None:
            self.saw_answer(answer)
        elif not self._open:
            self.counted += 1
        self._open = True

    def saw_answer(self, answer: str) -> None:
        """Count a turn if *answer* is not the one that was heard last."""
        if answer != self._answer:
            self._answer = answer
            self.counted += 1
        self._open = True

    def close(self) -> None:
        """End the open turn: a tool result arrived, or the attempt is over."""
        self._open = False
