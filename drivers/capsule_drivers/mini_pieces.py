"""The trajectory of mini-swe-agent in pieces: one odd message, or a cut end, costs no other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
from msgspec import Raw, Struct

_INFO, _INFO_END = b'\n  "info": {\n', b"\n  }"
_MESSAGES, _MESSAGES_END = b'\n  "messages": [', b"\n  ]"
_MESSAGE, _MESSAGE_END = b"\n    {\n", b"\n    }"


@dataclass(frozen=True, slots=True)
class Pieces:
    """What the file holds, each piece as JSON text. *lost* is the rest, if it broke off."""

    info: bytes
    messages: Sequence[bytes]
    lost: bytes | None = None


class _Whole(Struct, frozen=True):
    info: Raw = Raw(b"{}")
    messages: list[Raw] = []


_whole = msgspec.json.Decoder(_Whole)


def pieces_of(written: bytes) -> Pieces:
    """Return the pieces of the file: as JSON, and if it is none, by the lines it is laid out in."""
    try:
        whole = _whole.decode(written)
    except (msgspec.DecodeError, RecursionError):
        return _laid_out(written)
    return Pieces(bytes(whole.info), [bytes(raw) for raw in whole.messages])


def _laid_out(written: bytes) -> Pieces:
    # A newline inside a text is escaped, so what a line begins with tells how deep it lies.
    info, _ = _between(written, 0, _INFO, _INFO_END)
    place = written.find(_MESSAGES)
    if place < 0:
        return Pieces(info or b"{}", [], written)
    place += len(_MESSAGES)
    messages = list[bytes]()
    while True:
        message, after = _between(written, place, _MESSAGE, _MESSAGE_END)
        if message is None:
            break
        messages.append(message)
        place = after
    rest = written[place:].removeprefix(b",")
    return Pieces(info or b"{}", messages, None if rest.startswith(_MESSAGES_END) else rest)


def _between(text: bytes, start: int, first: bytes, last: bytes) -> tuple[bytes | None, int]:
    """Return the first object from *start* on, and where what follows it begins."""
    begin = text.find(first, start)
    end = text.find(last, begin) if begin >= 0 else -1
    if end < 0:
        return None, start
    return text[begin + len(first) - 2 : end + len(last)], end + len(last)
