"""What drivers do alike with what they read: lines that cannot be read, and errors told in words."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar, cast

import msgspec

from capsule_runtime import Exit, FailureKind, Note, TurnFailed

T = TypeVar("T")

_encode = msgspec.json.Encoder().encode
_NOTE_BYTES = 4096
_PROBLEM_CHARACTERS = 200
_TAIL_CHARACTERS = 500
_DEPTH = 128
"""How many brackets may stand in one another: whoever reads the log must be able to decode it."""

_STATUS = re.compile(r"\b([45]\d\d)\b")
_STATUS_WITHIN = 60
"""An HTTP status stands at the beginning of a message; later numbers are something else."""
_HALF = re.compile(rb"\\u[dD][89a-fA-F]")
_ESCAPE = re.compile(rb"\\(?:u[dD][89abAB]..\\u[dD][c-fC-F]..|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)")
"""An escape in JSON text; its group is there if it stands for half a character."""
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


def unread(line: bytes, exc: Exception) -> Note:
    """Return what the log keeps of a *line* that could not be read."""
    shown = line[:_NOTE_BYTES].decode("utf-8", "replace")
    return Note(f"a line that is no event ({str(exc)[:_PROBLEM_CHARACTERS]}): {shown}")


def decoded(line: bytes, decode: Callable[[bytes], T]) -> T:
    """Return what *decode* makes of *line*; half a character becomes U+FFFD.

    Raises:
        msgspec.DecodeError, RecursionError, UnicodeDecodeError: it cannot be read.
    """
    try:
        return decode(line)
    except msgspec.DecodeError:
        if not _HALF.search(line):
            raise
        return decode(_ESCAPE.sub(lambda found: rb"\ufffd" if found[1] else found[0], line))


def is_deep(value: object) -> bool:
    """Tell whether *value* nests too deep to be passed on."""
    level = [value]
    for _ in range(_DEPTH + 1):  # the heart of the value lies behind its last bracket
        inner: list[object] = []
        for one in level:
            if isinstance(one, dict):
                inner.extend(cast("dict[str, object]", one).values())
            elif isinstance(one, list):
                inner.extend(cast("list[object]", one))
        if not inner:
            return False
        level = inner
    return True


def passed_on(value: object) -> object:
    """Return *value* as the log can hold it."""
    return "(it nests too deep to be shown)" if is_deep(value) else value


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


def words_of_stderr(exit: Exit) -> str:
    """Return the last line that the harness wrote to stderr, bounded."""
    said = exit.stderr_tail.decode("utf-8", "replace").strip()
    return said.rpartition("\n")[2][:_TAIL_CHARACTERS]


def left_early(exit: Exit) -> TurnFailed:
    """Return the end of a harness that left before it ended its turn."""
    if exit.signal is not None:
        kind, how = FailureKind.HARNESS_ERROR, f"was ended by signal {exit.signal}"
    elif exit.code is None:
        kind, how = FailureKind.INDETERMINATE, "was gone, nobody saw how,"
    else:
        kind = FailureKind.HARNESS_ERROR if exit.code else FailureKind.INDETERMINATE
        how = f"exited with code {exit.code}"
    said = words_of_stderr(exit)
    tail = f"; its stderr ends: {said}" if said else ""
    return TurnFailed(kind, f"the harness {how} before it ended its turn{tail}")
