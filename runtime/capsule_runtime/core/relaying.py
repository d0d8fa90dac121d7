"""What the gateway is asked, and what it is told to do: values, and nothing that acts."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import NamedTuple

from msgspec import Struct

from capsule_runtime.core.origins import Origin

Header = tuple[bytes, bytes]
"""A name, in lower case where it is compared, and a value."""

_NAME = re.compile(rb"[a-z0-9-]+")
_VALUE = re.compile(rb"[\x21-\x7e]+(?: [\x21-\x7e]+)*")


class RequestHead(Struct, frozen=True):
    """The first lines of a request, in the one form that passes."""

    method: str
    target: str
    """Begins with a slash; the query is part of it."""
    headers: tuple[Header, ...]
    """The names in lower case."""

    def values(self, name: bytes) -> list[bytes]:
        """Return the values of header *name*, in order."""
        return [value for key, value in self.headers if key == name]


class Fault(NamedTuple):
    """Why the gateway itself does not do what it is asked."""

    status: int
    code: str
    message: str


class Credential:
    """The one header that lets a call in at its upstream; it shows its value to nobody."""

    __slots__ = ("_value", "header")

    def __init__(self, header: bytes, value: bytes) -> None:
        """Take the whole value of *header*, such as `Bearer …`.

        Raises:
            ValueError: no header can be made of it; the message does not show it.
        """
        if not _NAME.fullmatch(header):
            raise ValueError("the header of a key has a name in lower case")
        if not _VALUE.fullmatch(value):
            raise ValueError("the key has characters that no header may have")
        self.header = header
        self._value = value

    def reveal(self) -> bytes:
        """Return the value, for the wire alone."""
        return self._value

    @property
    def secret(self) -> bytes:
        """Return the part that must not come back: the key without its scheme."""
        return self._value.rpartition(b" ")[2]

    def __repr__(self) -> str:
        return f"Credential({self.header!r}, …)"


class Forward(Struct, frozen=True):
    """A call that may go on, as it is to arrive."""

    origin: Origin
    target: str
    """Beneath the base path of *origin*; begins with a slash."""
    body: bytes
    credential: Credential | None = None
    """None where the upstream asks for none."""
    headers: tuple[Header, ...] = ()
    """These take the place of what the client said by the same names, in lower case."""


class Answer(Struct, frozen=True):
    """A call that goes no further, and what the client hears instead."""

    status: int
    headers: tuple[Header, ...]
    body: bytes


class Ending(StrEnum):
    """How a call ended that was forwarded."""

    COMPLETE = "complete"
    """The upstream said all it had to say; the client may have heard less."""
    CUT = "cut"
    """Nobody knows how much the upstream did."""
    UNSENT = "unsent"
    """The upstream was not reached: it heard nothing."""
