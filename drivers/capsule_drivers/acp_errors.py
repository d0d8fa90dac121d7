"""What kind of failure an ACP agent means: by the reason it stopped, or by the words of an error."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import cast

from capsule_drivers.acp_wire import Problem
from capsule_runtime import FailureKind

_STOPPED = {
    "refusal": (FailureKind.DECLINED, "the model declined"),
    "max_tokens": (FailureKind.TRUNCATED, "the answer was cut off at the limit of tokens"),
    "max_turn_requests": (FailureKind.MAX_TURNS, "the agent reached its limit of turns"),
    "cancelled": (FailureKind.OTHER, "the agent cancelled the turn"),
}
UNSAID = (FailureKind.INDETERMINATE, "the agent did not say how its turn ended")


def failure_of_stop(reason: str) -> tuple[FailureKind, str]:
    """Return what it means that a turn ended by a *reason* other than `end_turn`."""
    other = (FailureKind.OTHER, f"the turn ended with {reason[:100]!r}")
    return _STOPPED.get(reason, other)


def said_of(problem: Problem) -> str:
    """Return the words of *problem*, with the details that some agents hide beside them."""
    data = problem.data
    details = cast("dict[str, object]", data).get("details") if isinstance(data, dict) else data
    words = [problem.message, details if isinstance(details, str) else ""]
    return ": ".join(word for word in words if word)[:2000] or f"error {problem.code}"


_STATUS = {
    401: FailureKind.AUTH,
    402: FailureKind.QUOTA,
    403: FailureKind.AUTH,
    413: FailureKind.CONTEXT_LENGTH,
    429: FailureKind.RATE_LIMIT,
}
_NUMBER = re.compile(r"(?<![\w.])[45]\d\d(?!\w|\.\d)")
_STATUS_WITHIN = 200
"""An HTTP status stands near the beginning; later numbers are something else."""
_KINDS: Sequence[tuple[FailureKind, Sequence[str]]] = (
    (FailureKind.AUTH, ("api key", "api-key", "unauthorized", "authenticat")),
    (FailureKind.QUOTA, ("quota", "billing", "credit balance")),
    (FailureKind.RATE_LIMIT, ("rate limit", "rate_limit", "resource_exhausted")),
    (FailureKind.CONTEXT_LENGTH, ("context length", "context window", "prompt is too long")),
    (FailureKind.DECLINED, ("content filter", "contentfilter", "refusal", "usage policy")),
    (FailureKind.MAX_TURNS, ("max turns", "max session turns")),
)


def kind_of(code: int, words: str) -> FailureKind:
    """Return what kind of failure an error of *code* and *words* is, as far as they tell."""
    if code == -32000:
        return FailureKind.AUTH
    lower = words.lower()
    for kind, marks in _KINDS:
        if any(mark in lower for mark in marks):
            return kind
    numbers = [code, *map(int, _NUMBER.findall(words[:_STATUS_WITHIN]))]
    return next((_STATUS[number] for number in numbers if number in _STATUS), FailureKind.OTHER)
