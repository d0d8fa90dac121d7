"""Notes are bounded: bad bytes from a harness must not fill the log."""

from __future__ import annotations

NOTE_BYTES = 4 * 1024
NOTES_PER_RUN = 1_000
NOTE_BYTES_PER_RUN = 1024 * 1024


class NoteBudget:
    """How much a run may still note. What does not fit is counted in `dropped`."""

    def __init__(self) -> None:
        self.dropped = 0
        self._count = 0
        self._bytes = 0

    def admit(self, text: str) -> str | None:
        """Return *text*, cut to a note's size, or None when the run has noted enough."""
        raw = text.encode("utf-8", "replace")
        size = min(len(raw), NOTE_BYTES)
        if self._count >= NOTES_PER_RUN or self._bytes + size > NOTE_BYTES_PER_RUN:
            self.dropped += 1
            return None
        self._count += 1
        self._bytes += size
        return raw[:NOTE_BYTES].decode("utf-8", "ignore")
