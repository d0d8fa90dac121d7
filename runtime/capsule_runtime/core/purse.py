"""What a run has to spend: its own ceilings and its share of the day, and what they say now."""

from __future__ import annotations

from typing import NamedTuple

from capsule_runtime.core.actions import TopUp
from capsule_runtime.core.ceilings import Ceiling
from capsule_runtime.core.day_share import CALLS_WANTED, Needs, Share
from capsule_runtime.core.ledger import Ledger
from capsule_runtime.core.outcome import Reason

REASON_OF: dict[Ceiling, Reason] = {
    Ceiling.USD: Reason.USD,
    Ceiling.TOKENS: Reason.TOKENS,
    Ceiling.TURNS: Reason.TURNS,
    Ceiling.TOOL_CALLS: Reason.TOOL_CALLS,
}
"""Why a run ends that reached a ceiling."""


class TooMuch(NamedTuple):
    """Nothing more may be spent."""

    reason: Reason
    message: str


class Purse:
    """Watch a ledger for what has to be done about it."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._asked: Needs | None = None
        self._is_empty = False

    def verdict(self, today: str) -> TooMuch | TopUp | None:
        """Return what to do now. A share that is asked for is not asked for again meanwhile."""
        if (refusal := self._ledger.refusal) is not None:
            return TooMuch(REASON_OF[refusal.ceiling], refusal.refusal)
        if self._is_empty and self._ledger.share and self._ledger.share.day == today:
            if (lack := self._ledger.lack()) is None:
                return None
            return TooMuch(REASON_OF[lack.ceiling], lack.refusal)
        if self._asked is not None or self._ledger.lack(CALLS_WANTED) is None:
            return None
        self._asked = self._ledger.needs
        return TopUp(self._asked)

    def hold(self, share: Share) -> None:
        """Take *share*, which is what there is for what was asked for."""
        asked, self._asked, self._ledger.share = self._asked, None, share
        # A share that does not even cover what was asked for is all there is. What was used since
        # then is asked for anew.
        self._is_empty = asked is not None and share.lack(asked, CALLS_WANTED) is not None
