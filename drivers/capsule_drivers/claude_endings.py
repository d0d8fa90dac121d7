"""How Claude Code says that a turn went wrong, and how that is called here."""

from __future__ import annotations

from msgspec import UNSET

from capsule_drivers import exits
from capsule_drivers.json_text import passed_on
from capsule_drivers.stream_json import Result
from capsule_runtime import Exit, FailureKind, TurnEnd, TurnFailed

_WORDS = 2000
_REASONS = {
    "max_turns": FailureKind.MAX_TURNS,
    "budget_exhausted": FailureKind.QUOTA,
    "prompt_too_long": FailureKind.CONTEXT_LENGTH,
    "blocking_limit": FailureKind.CONTEXT_LENGTH,
}
_SUBTYPES = {
    "error_max_turns": FailureKind.MAX_TURNS,
    "error_max_budget_usd": FailureKind.QUOTA,
}
_ERRORS = {
    "authentication_failed": FailureKind.AUTH,
    "oauth_org_not_allowed": FailureKind.AUTH,
    "billing_error": FailureKind.QUOTA,
    "rate_limit": FailureKind.RATE_LIMIT,
    "max_output_tokens": FailureKind.TRUNCATED,
}
_STATUSES = {
    401: FailureKind.AUTH,
    402: FailureKind.QUOTA,
    403: FailureKind.AUTH,
    413: FailureKind.CONTEXT_LENGTH,
    429: FailureKind.RATE_LIMIT,
}
_PHRASES = (
    ("No conversation found", FailureKind.SESSION_GONE),
    ("rompt is too long", FailureKind.CONTEXT_LENGTH),
    ("output token maximum", FailureKind.TRUNCATED),
    ("credit balance is too low", FailureKind.QUOTA),
    ("usage limit", FailureKind.QUOTA),
    ("Not logged in", FailureKind.AUTH),
    ("Invalid API key", FailureKind.AUTH),
)
"""Where it has words only."""


def end_of(result: Result, error: str | None) -> TurnEnd | TurnFailed:
    """Return how *result* ends a turn, after the API *error*."""
    if (failure := _failure_of(result, error)) is not None:
        return TurnFailed(*failure)
    data = result.structured_output
    return TurnEnd(result.result or "", data if data is UNSET else passed_on(data))


def _failure_of(result: Result, error: str | None) -> tuple[FailureKind, str] | None:
    """Return what *result* gives up with; None if all went well.

    `subtype` alone says "success" of API errors and refusals too.
    """
    reason, subtype = result.terminal_reason or "", result.subtype
    if subtype == "success" and not result.is_error:
        return None
    words = (result.result or "; ".join(result.errors or ()) or reason or subtype)[:_WORDS]
    if reason.startswith("aborted"):
        return FailureKind.OTHER, f"interrupted ({reason})"
    if result.stop_reason == "refusal":
        return FailureKind.DECLINED, words
    kind = _REASONS.get(reason) or _SUBTYPES.get(subtype) or _said_in(words)
    kind = kind or _ERRORS.get(error or "") or _STATUSES.get(result.api_error_status or 0)
    return kind or FailureKind.OTHER, words


def failure_of_exit(exit: Exit) -> TurnFailed:
    """Return what it means that the output ended without a result."""
    kind = _said_in(exit.stderr_tail.decode("utf-8", "replace"))
    return exits.failure_of(exit, kind)


def _said_in(words: str) -> FailureKind | None:
    return next((kind for phrase, kind in _PHRASES if phrase in words), None)
