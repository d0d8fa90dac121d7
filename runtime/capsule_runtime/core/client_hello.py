"""The first words of a TLS connection: for which server they are.

Strict, because whoever reads them less strictly than the server may read another name than the
server does: what is not exactly as RFC 8446 and RFC 6066 have it is no greeting. Bounded, because
they come from a harness.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

HELLO_BYTES = 16 * 1024
"""As long as a greeting may be: those of today, with keys that resist quantum computers, have 2 KiB."""
_RECORD_HEAD = 5
_RECORD_BYTES = 2**14
_MESSAGE_HEAD = 4
_HANDSHAKE = 22
_CLIENT_HELLO = 1
_MAJOR_VERSION = 3
_SERVER_NAME = 0
_HOST_NAME = 0
_NAME = rb"(?=.{1,253}\Z)[A-Za-z0-9_-]{1,63}(?:\.[A-Za-z0-9_-]{1,63})*"


@dataclass(frozen=True, slots=True)
class Hello:
    """A whole greeting. *server_name* is in lower case; None where none stands."""

    server_name: str | None


@dataclass(frozen=True, slots=True)
class NoHello:
    """What came is no greeting of TLS. *why* quotes nothing of it."""

    why: str


class HelloReader:
    """Take the first bytes of a connection until they are a greeting, or cannot become one."""

    def __init__(self) -> None:
        self._raw = bytearray()
        self._at = 0
        """Where the next record begins in *raw*."""
        self._message = bytearray()
        self._answer: Hello | NoHello | None = None

    @property
    def taken(self) -> bytes:
        """Return all that was fed, for whom it is for."""
        return bytes(self._raw)

    def feed(self, data: bytes) -> Hello | NoHello | None:
        """Take more bytes; return what they are, once that is known."""
        self._raw += data
        while self._answer is None:
            before = self._at
            self._answer = self._next_record()
            if self._at == before:
                break
        return self._answer

    def _next_record(self) -> Hello | NoHello | None:
        """Move the next whole record into the message."""
        head = self._raw[self._at : self._at + _RECORD_HEAD]
        if (head[:1] and head[0] != _HANDSHAKE) or (head[1:2] and head[1] != _MAJOR_VERSION):
            return NoHello("it is not TLS")
        if len(head) < _RECORD_HEAD:
            return None
        length = int.from_bytes(head[3:], "big")
        if not 1 <= length <= _RECORD_BYTES:
            return NoHello("a record has no length that TLS knows")
        begin, end = self._at + _RECORD_HEAD, self._at + _RECORD_HEAD + length
        if len(self._raw) < end:
            # Who speaks something else is told so without waiting for a whole record of it.
            return _trouble_with(self._message + self._raw[begin : begin + _MESSAGE_HEAD])
        self._message += self._raw[begin:end]
        self._at = end
        return _trouble_with(self._message) or self._whole_greeting()

    def _whole_greeting(self) -> Hello | NoHello | None:
        """Judge the message, if all of it is there."""
        message, length = self._message, _length_of(self._message)
        if length is None or len(message) < _MESSAGE_HEAD + length:
            return None
        if len(message) > _MESSAGE_HEAD + length:
            return NoHello("more than a greeting stands in its record")
        try:
            return Hello(_server_name(bytes(message[_MESSAGE_HEAD:])))
        except _Broken as broken:
            return NoHello(str(broken))


def _length_of(message: bytearray) -> int | None:
    """Return how long the message behind its head is; None while that is not there."""
    return int.from_bytes(message[1:4], "big") if len(message) >= _MESSAGE_HEAD else None


def _trouble_with(message: bytearray) -> NoHello | None:
    """Say why what begins like *message* is no greeting."""
    if message[:1] and message[0] != _CLIENT_HELLO:
        return NoHello("it does not begin with a greeting")
    if (_length_of(message) or 0) > HELLO_BYTES:
        return NoHello("it is longer than a greeting may be")
    return None


class _Broken(Exception):
    """Raised when a part of a greeting is not as it must be."""


class _Part:
    """Bytes that are taken off from the front, each by its length."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def is_empty(self) -> bool:
        return self._at == len(self._data)

    def take(self, length: int) -> bytes:
        taken = self._data[self._at : self._at + length]
        if len(taken) < length:
            raise _Broken("a part of the greeting is shorter than it says")
        self._at += length
        return taken

    def number(self, width: int) -> int:
        return int.from_bytes(self.take(width), "big")

    def part(self, width: int) -> _Part:
        """Take a part that its length stands before, in *width* bytes."""
        return _Part(self.take(self.number(width)))

    def all(self) -> bytes:
        return self.take(len(self._data) - self._at)

    def end(self) -> None:
        if not self.is_empty:
            raise _Broken("a part of the greeting is longer than it should be")


def _server_name(body: bytes) -> str | None:
    hello = _Part(body)
    hello.take(2 + 32)  # version and random
    session, suites, compressions = (hello.part(width).all() for width in (1, 2, 1))
    if len(session) > 32 or not suites or len(suites) % 2 or not compressions:
        raise _Broken("the greeting offers nothing that TLS knows")
    if hello.is_empty:
        return None
    extensions = hello.part(2)
    hello.end()
    found = dict[int, _Part]()
    while not extensions.is_empty:
        kind = extensions.number(2)
        if kind in found:
            raise _Broken("an extension stands twice in the greeting")
        found[kind] = extensions.part(2)
    return _name_in(found[_SERVER_NAME]) if _SERVER_NAME in found else None


def _name_in(extension: _Part) -> str:
    names = extension.part(2)
    extension.end()
    if names.number(1) != _HOST_NAME:
        raise _Broken("the greeting names its server by something else than a name")
    name = names.part(2).all()
    names.end()
    if not re.fullmatch(_NAME, name):
        raise _Broken("the name of the server is no name")
    return name.decode("ascii").lower()
