"""What a harness says that its calls cost: kept beside our own account, never part of it.

A report of a call that names one already heard of replaces what was said of it. A cumulative report says
what one model cost so far in this attempt; only what it has beyond all that was told of it is new.
"""

from __future__ import annotations

from capsule_runtime.core.money import MICRODOLLARS
from capsule_runtime.core.usage import MOST_CALLS
from capsule_runtime.events import Usage

MOST_USD = 1e9
"""A driver in Python may say anything."""


class ToldDollars:
    """Add up a run's reports. `microusd` is None until something was told."""

    def __init__(self) -> None:
        self.microusd: int | None = None
        self._of_call: dict[str, int] = {}
        self._of_model: dict[str, int] = {}

    def next_attempt(self) -> None:
        """Begin another attempt: call ids and cumulative sums start anew."""
        self._of_call.clear()
        self._of_model.clear()

    def apply(self, report: Usage) -> None:
        """Add what *report* says of dollars; what cannot be is nothing."""
        if report.cost_usd is None or not 0 <= report.cost_usd <= MOST_USD:
            return
        told = round(report.cost_usd * MICRODOLLARS)
        of_model = self._of_model.get(report.model, 0)
        new = (
            max(0, told - of_model) if report.scope == "total" else self._new_of_call(report, told)
        )
        if report.model in self._of_model or len(self._of_model) < MOST_CALLS:
            self._of_model[report.model] = of_model + new
        self.microusd = (self.microusd or 0) + new

    def _new_of_call(self, report: Usage, told: int) -> int:
        if not report.call_id:
            return told
        before = self._of_call.get(report.call_id, 0)
        if before or len(self._of_call) < MOST_CALLS:
            self._of_call[report.call_id] = told
        return told - before
