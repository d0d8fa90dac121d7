"""When a run of Claude Code is over: the end of a turn is its end if no words wait.

Words that it is steered with stand in a queue of its own, and what is in there gets a turn when the
present one is over, however that ended. That it took them it tells many times over (an echo, how its
queue moves on, and what the lines of a turn say they answer), and any of these will do: one line
that is lost must not leave a run without its end.
"""

from __future__ import annotations

from collections.abc import Iterable

from capsule_drivers.claude_endings import failure_of_exit
from capsule_runtime import Event, Exit, Note, Steered, TurnEnd, TurnFailed


class Turns:
    """Decide which end of a turn is the end of the run, which has one."""

    def __init__(self) -> None:
        self._waiting: dict[str, None] = {}
        """Words that it has not taken, by id."""
        self._held: TurnEnd | TurnFailed | None = None
        """How the last turn ended, while words wait and none of another was heard."""
        self._is_over = self._is_stopping = False

    def wait_for(self, id: str) -> None:
        """Apply: words were written to it."""
        self._waiting[id] = None

    def stop(self) -> None:
        """Apply: it was asked to stop, and to drop the words that wait."""
        self._is_stopping = True

    def took(self, ids: Iterable[str]) -> list[Event]:
        """Return that it took those of *ids* that waited."""
        found = [id for id in ids if id in self._waiting]
        for id in found:
            del self._waiting[id]
            self._held = None
        return [Steered(id) for id in found]

    def dropped(self, id: str) -> list[Event]:
        """Apply: the words *id* will not be taken; return the end of the run if they were the last."""
        self._waiting.pop(id, None)
        if self._held is None or self._waiting:
            return []
        end, self._held = self._held, None
        return self.ended(end)

    def goes_on(self) -> None:
        """Apply: the model speaks, so the turn before is not the last."""
        self._held = None

    def ended(self, end: TurnEnd | TurnFailed) -> list[Event]:
        """Return what it means that a turn ended in *end*."""
        if self._is_over:
            return [Note("Claude Code ended a turn after the last one")]
        if self._waiting and not self._is_stopping:
            self._held = end
            how = end.message if isinstance(end, TurnFailed) else "done"
            return [Note(f"a turn ended ({how}); words that wait get the next one")]
        self._is_over = True
        return [end]

    def left(self, exit: Exit) -> TurnEnd | TurnFailed:
        """Return what it means that it left by *exit* before it ended a turn without words waiting.

        A turn that was done stays done, unless it broke down on the words that waited.
        """
        held, self._is_over = self._held, True
        if isinstance(held, TurnFailed) or (held and (exit.code == 0 or self._is_stopping)):
            return held
        return failure_of_exit(exit)
