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
        self._of_call: dict[str, tuple[str, int]] = {}
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
        if report.scope == "total":
            booked = new = max(0, told - self._of_model.get(report.model, 0))
        else:
            booked, new = told, told - self._taken_back(report, told)
        self._book(report.model, booked)
        self.microusd = (self.microusd or 0) + new

    def _taken_back(self, report: Usage, told: int) -> int:
        """Take back what was said before of the call that *report* names, and return it."""
        if not report.call_id:
            return 0
        model, before = self._of_call.get(report.call_id, (report.model, 0))
        if before or len(self._of_call) < MOST_CALLS:
            self._of_call[report.call_id] = report.model, told
        self._book(model, -before)
        return before

    def _book(self, model: str, microusd: int) -> None:
        if model in self._of_model or len(self._of_model) < MOST_CALLS:
            self._of_model[model] = self._of_model.get(model, 0) + microusd
