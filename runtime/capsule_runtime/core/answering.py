"""What a harness is told that waits for an answer, and the entry that says so."""

from __future__ import annotations

from capsule_runtime.core.facts import PermissionDecided
from capsule_runtime.core.grants import Policy
from capsule_runtime.core.journal import Journal
from capsule_runtime.core.permissions import ALLOWED, answer_to, tool_of
from capsule_runtime.events import Permission, Request
from capsule_runtime.messages import Decision


def write_answer(journal: Journal, event: Request, policy: Policy) -> Decision:
    """Write into *journal* what is decided on *event*, and return it."""
    decision = answer_to(event, policy)
    if isinstance(event, Permission):
        id, tool, allowed = event.id, tool_of(event), decision == ALLOWED
        journal.fact(
            lambda seq, at, run: PermissionDecided(seq, at, run, id, tool, allowed, policy)
        )
    return decision
