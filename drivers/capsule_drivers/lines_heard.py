"""Lines that a harness names, each heard once."""

from __future__ import annotations

_REMEMBERED = 4096


class LinesHeard:
    """Remember the names of the last few thousand lines."""

    def __init__(self) -> None:
        self._newer: set[str] = set()
        self._older: set[str] = set()

    def is_new(self, name: str) -> bool:
        """Tell whether the line *name* was not heard before, and remember it."""
        if name in self._newer or name in self._older:
            return False
        self._newer.add(name)
        if len(self._newer) >= _REMEMBERED:
            self._newer, self._older = set(), self._newer
        return True
