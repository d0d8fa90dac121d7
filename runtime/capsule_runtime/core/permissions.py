"""What a harness is told when it asks whether it may use a tool, and nobody is there to ask.

The walls decide what a tool can do; this decides whether it is tried at all.
"""

from __future__ import annotations

from collections.abc import Iterable

from capsule_runtime.core.grants import Policy, Tier, Wish
from capsule_runtime.errors import ContainmentError
from capsule_runtime.events import Permission, Request
from capsule_runtime.messages import Answer, Decision, Refused

_FROM_STRICT_TO_LAX: tuple[Policy, ...] = ("fail", "deny", "allow")

_TOOL_CHARACTERS = 200

ALLOWED = Answer("allow")


def policy_of(wishes: Iterable[Wish | None]) -> Policy | None:
    """Return the strictest of *wishes*; None if there are none.

    Raises:
        ContainmentError: E-CAP-005, somebody is to be asked.
    """
    said = [wish for wish in wishes if wish is not None]
    if "ask" in said:
        raise ContainmentError(
            "E-CAP-005",
            "on_permission is 'ask', and in this version nobody can be asked",
            "Say allow, deny or fail, here and in the capsule.",
        )
    for policy in _FROM_STRICT_TO_LAX:
        if any(wish == policy for wish in said):
            return policy
    return None


def usual_policy(tier: Tier) -> Policy:
    """Return what a harness is told in *tier* where nobody said anything.

    In sealed and scoped runs the walls hold what it does, whatever it is told.
    """
    return "deny" if tier == "advisory" else "allow"


def tool_of(event: Permission) -> str:
    """Return the name of the tool that *event* asks for, as far as anybody would read it."""
    return event.tool[:_TOOL_CHARACTERS]


def answer_to(event: Request, policy: Policy) -> Decision:
    """Return what the harness is told that waits for an answer to *event*."""
    if not isinstance(event, Permission):
        return Refused("E-RUN-041", f"this runtime does not offer {type(event).__name__.lower()}")
    if policy == "allow":
        return ALLOWED
    return Refused("E-RUN-040", f"permission to use {tool_of(event)} is denied; do without it")
