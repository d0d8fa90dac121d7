"""How a turn of pi ended, by its last answer."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
from msgspec import Struct

from capsule_drivers.exits import UNREAD_END, failure_of, last_words
from capsule_drivers.json_text import decoded
from capsule_drivers.pi_lines import STOPPED_BY_PROVIDER, AgentEnd, PiMessage, decode_message
from capsule_drivers.reading import kind_of_error
from capsule_runtime import Exit, FailureKind, TurnEnd, TurnFailed


@dataclass(frozen=True, slots=True)
class Ending:
    """How a turn ended, and by which answer."""

    told: TurnEnd | TurnFailed
    answer: float | str | None = None
    may_be_tried_again: bool = False


class Speaker(Struct, frozen=True, gc=False):
    """Whose a message is."""

    role: object = None


_speaker = msgspec.json.Decoder(Speaker)


def ending_of(end: AgentEnd) -> Ending:
    """Return how the turn ended. Only its last answer is read, whatever else is in there."""
    try:
        last = _last_answer(end)
    except (msgspec.DecodeError, RecursionError) as exc:
        return _nothing_told(f"an answer that cannot be read ({exc})")
    return _nothing_told("no answer") if last is None else ending_by(last)


def _last_answer(end: AgentEnd) -> PiMessage | None:
    for raw in reversed(end.messages):
        if _speaker.decode(raw).role == "assistant":
            return decoded(bytes(raw), decode_message)
    return None


def unread_ending(last: PiMessage | None) -> Ending:
    """Return how it ended if that cannot be read: by its *last* answer, if that was heard."""
    return Ending(UNREAD_END) if last is None else ending_by(last)


def ending_by(last: PiMessage) -> Ending:
    """Return how a turn ended whose *last* answer that is."""
    match last.stop_reason:
        case "stop":
            return _told_by(last)
        case "error":
            return Ending(_failure(last), last.moment, may_be_tried_again=True)
        case "length":
            kind, how = FailureKind.TRUNCATED, "the answer was cut off at its longest"
        case "aborted":
            kind, how = FailureKind.OTHER, "the turn was interrupted"
        case reason:
            return _nothing_told(reason or "no reason")
    return Ending(TurnFailed(kind, how), last.moment)


def ending_by_exit(exit: Exit) -> TurnFailed:
    """Return what it means that pi left by *exit* and had told no end."""
    said = last_words(exit)
    if "No session found" in exit.stderr_tail.decode("utf-8", "replace"):
        return TurnFailed(FailureKind.SESSION_GONE, said)
    failed = failure_of(exit)
    if exit.code and (kind := kind_of_error(said)) is FailureKind.AUTH:
        return TurnFailed(kind, failed.message)
    return failed


def _told_by(last: PiMessage) -> Ending:
    try:
        return Ending(TurnEnd(last.text), last.moment)
    except (msgspec.DecodeError, RecursionError) as exc:
        return _nothing_told(f"an answer that cannot be read ({exc})")


def _failure(last: PiMessage) -> TurnFailed:
    if last.error_message == STOPPED_BY_PROVIDER:
        return TurnFailed(FailureKind.DECLINED, "the model declined, or its provider's filter did")
    why = last.error_message or "pi ended with an error that it does not tell"
    return TurnFailed(kind_of_error(why), why)


def _nothing_told(how: str) -> Ending:
    return Ending(TurnFailed(FailureKind.INDETERMINATE, f"pi ended with {how}"))
