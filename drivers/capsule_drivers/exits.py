"""What it means that a harness left, or ended its turn, without a word on how that was."""

from __future__ import annotations

from capsule_runtime import Exit, FailureKind, TurnFailed

_STDERR_CHARACTERS = 500
UNREAD_END = TurnFailed(
    FailureKind.INDETERMINATE, "the turn is over, and the line that says how cannot be read"
)
"""What is told of a turn then. To wait for another line would be to wait for ever."""


def failure_of(exit: Exit, kind: FailureKind | None = None) -> TurnFailed:
    """Return the failure that *exit* stands for; *kind* is what its code means, if that is known."""
    if exit.signal is not None:
        found, how = FailureKind.HARNESS_ERROR, f"was ended by signal {exit.signal}"
    elif exit.code:
        found, how = FailureKind.HARNESS_ERROR, f"exited with code {exit.code}"
    elif exit.code is None:
        found, how = FailureKind.INDETERMINATE, "was gone, nobody saw how,"
    else:
        found, how = FailureKind.INDETERMINATE, "exited with code 0"
    said = last_words(exit)
    tail = f"; its stderr ends: {said}" if said else ""
    return TurnFailed(kind or found, f"the harness {how} before it ended its turn{tail}")


def last_words(exit: Exit) -> str:
    """Return the last line of stderr, bounded."""
    said = exit.stderr_tail.decode("utf-8", "replace").strip()
    return said.rpartition("\n")[2][:_STDERR_CHARACTERS]
