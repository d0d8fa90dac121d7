"""What drivers do alike with what they read and write: errors told in words, and lines."""

from __future__ import annotations

import re

import msgspec

from capsule_runtime import FailureKind

_encode = msgspec.json.Encoder().encode
_STATUS = re.compile(r"\b([45]\d\d)\b")
_STATUS_WITHIN = 60
"""An HTTP status stands at the beginning of a message; later numbers are something else."""
_OF_STATUS = {
    401: FailureKind.AUTH,
    402: FailureKind.QUOTA,
    403: FailureKind.AUTH,
    413: FailureKind.CONTEXT_LENGTH,
    429: FailureKind.RATE_LIMIT,
}
_OF_WORDS = (
    (FailureKind.CONTEXT_LENGTH, ("context length", "context_length", "prompt is too long")),
    (FailureKind.CONTEXT_LENGTH, ("context window", "maximum context")),
    (FailureKind.CONTEXT_LENGTH, ("context is too large",)),
    (FailureKind.QUOTA, ("insufficient_quota", "exceeded your current quota", "credit balance")),
    (FailureKind.AUTH, ("invalid api key", "no api key", "authentication", "unauthorized")),
    (FailureKind.RATE_LIMIT, ("rate limit", "rate_limit", "too many requests")),
    (FailureKind.DECLINED, ("content_filter",)),
)


def json_line(value: object) -> bytes:
    """Return *value* as a line for the harness's stdin."""
    return _encode(value) + b"\n"


def kind_of_error(message: str) -> FailureKind:
    """Return what kind of failure a provider's error *message* tells of."""
    lower = message.lower()
    for kind, words in _OF_WORDS:
        if any(word in lower for word in words):
            return kind
    status = _STATUS.search(message[:_STATUS_WITHIN])
    return _OF_STATUS.get(int(status[1]), FailureKind.OTHER) if status else FailureKind.OTHER
