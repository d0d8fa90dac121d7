"""Words for a working harness: what passes between who has them and the run's owner."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from capsule_runtime.core.facts import SteerAsked
from capsule_runtime.core.ladder import NOT_WORKING
from capsule_runtime.core.log import decode_entries
from capsule_runtime.core.units import show_size
from capsule_runtime.errors import UsageError
from capsule_runtime.messages import Refused

STEER = "steer"
"""The verb by which another process asks for it."""
WORDS_BYTES = 1024 * 1024
_HINTS = {
    NOT_WORKING: "Give them to the context's next run: capsule run --context NAME --task TEXT",
    "E-USE-005": "Interrupt the run, and give them to the next one: capsule run --context NAME",
}


class Words(Struct, frozen=True):
    """What is asked for. The harness says by *id* when it has taken them."""

    id: str
    text: str


def words_for(run: str, id: str, text: str) -> Words:
    """Return *text* as words for the harness of *run*, called *id*.

    Raises:
        UsageError: E-USE-006, these are no words, or too many.
    """
    size = len(text.encode("utf-8", "replace"))
    if not text.strip() or size > WORDS_BYTES:
        what = f"{show_size(size)} of words" if size > WORDS_BYTES else "no words"
        raise UsageError(
            "E-USE-006",
            f"{run} cannot be given {what}",
            f"Give it something to read, and at most {show_size(WORDS_BYTES)}; more in a file.",
        )
    return Words(id, text)


def has_ended(run: str) -> Refused:
    """Return why *run*, which has ended, is given nothing."""
    return Refused(NOT_WORKING, f"{run} has ended, so nobody can hand it words")


def refusal(why: Refused) -> UsageError:
    """Return *why* words were not handed over as the error that says so."""
    return UsageError(why.code, why.message, _HINTS.get(why.code, ""))


def find_answer(body: bytes, id: str) -> SteerAsked | None:
    """Return what the row *body* of a log says of the words *id*."""
    if id.encode() not in body:
        return None
    found = (it for it in decode_entries(body) if isinstance(it, SteerAsked) and it.id == id)
    return next(found, None)


def encode(words: Words) -> bytes:
    """Return *words* as the body of a request."""
    return msgspec.json.encode(words)


def decode(body: bytes) -> Words | None:
    """Return the words of the *body* of a request; None if another process wrote none there."""
    try:
        return msgspec.json.decode(body, type=Words)
    except msgspec.DecodeError:
        return None
