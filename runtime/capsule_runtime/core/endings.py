"""The facts that a run's end is made of, in their order."""

from __future__ import annotations

from capsule_runtime.core import facts
from capsule_runtime.core.actions import Burial
from capsule_runtime.core.journal import Journal
from capsule_runtime.core.ledger import Settled
from capsule_runtime.core.outcome import OUTCOME_OF, Reason
from capsule_runtime.messages import Exit


def write_exit(journal: Journal, exit: Exit, burial: Burial) -> None:
    """Write that the harness is gone, and what was found of its tree."""
    journal.fact(lambda s, at, run: facts.Exited(s, at, run, exit.code, exit.signal))
    journal.fact(
        lambda s, at, run: facts.TreeEmpty(
            s, at, run, burial.killed, burial.left, burial.milliseconds
        )
    )


def write_end(journal: Journal, reason: Reason, message: str, settled: Settled) -> None:
    """Write that the account is closed, then that the run is over."""
    outcome, turns, calls = OUTCOME_OF[reason], settled.turns, settled.tool_calls
    journal.fact(lambda s, at, run: facts.SpendClosed(s, at, run, settled))
    journal.fact(lambda s, at, run: facts.Ended(s, at, run, outcome, reason, message, turns, calls))
