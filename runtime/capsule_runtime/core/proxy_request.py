"""What a run asks its proxy for: one request on each connection, read strictly.

There is one way to read a request here, and what another reader could take for something else is
refused: bare line ends, folded or doubled fields, two lengths, names with a user before them. So
nothing behind the proxy can be asked for what was not judged.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from capsule_runtime.core.destinations import (
    PLAIN_PORT,
    Destination,
    parse_endpoint,
    parse_host,
)
from capsule_runtime.core.verdicts import Refusal, Why

HEAD_BYTES = 8 * 1024
_FIELDS_AT_MOST = 100
_LONGEST_BODY = 2**40
_END = b"\r\n\r\n"
_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_REQUEST_LINE = rb"(%b) (\S+) HTTP/(\d)\.(\d)" % _TOKEN
_ODD = rb"[\x00-\x08\x0a-\x1f\x7f]"
"""What stands in no line of a head: bytes that end lines elsewhere, or show as something else."""
_PLAIN_METHODS = frozenset((b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS"))
_OF_THIS_HOP = frozenset(
    b"connection content-length expect host http2-settings keep-alive te trailer upgrade".split()
)
"""What is not passed on as it is: it is about this connection, or is written anew."""

_THIS_PROXY = frozenset(("127.0.0.1", "localhost"))
"""Whom Node's own client names as the host of its CONNECT; nothing is made of that field."""

Fields = list[tuple[bytes, bytes]]
"""Names in lower case, and values, in the order in which they came."""


@dataclass(frozen=True, slots=True)
class Tunnel:
    """CONNECT: bytes both ways, once they begin as TLS for that host."""

    target: Destination


@dataclass(frozen=True, slots=True)
class PlainRequest:
    """One request in plain HTTP: *head* is what the server gets, and then *body_bytes* follow."""

    target: Destination
    head: bytes
    body_bytes: int


Request = Tunnel | PlainRequest


class RequestReader:
    """Take the first bytes of a connection until they are a request, or cannot become one."""

    def __init__(self) -> None:
        self._head = bytearray()
        self.rest = b""
        """What came behind the request's head."""

    @property
    def is_empty(self) -> bool:
        """Tell whether nothing came yet."""
        return not self._head

    def feed(self, data: bytes) -> Request | Refusal | None:
        """Take more bytes; return what is asked for, once that is known."""
        searched = max(0, len(self._head) - len(_END) + 1)
        self._head += data
        end = self._head.find(_END, searched)
        if end > HEAD_BYTES or (end < 0 and len(self._head) > HEAD_BYTES):
            return Refusal(Why.TOO_LARGE, f"the head of a request has at most {HEAD_BYTES} bytes")
        if end < 0:
            return None
        self.rest = bytes(self._head[end + len(_END) :])
        return parse_head(bytes(self._head[:end]))


class _Wrong(Exception):
    """Raised when a head is not as it must be."""

    def __init__(self, message: str, why: Why = Why.MALFORMED) -> None:
        super().__init__(message)
        self.refusal = Refusal(why, message)


def parse_head(head: bytes) -> Request | Refusal:
    """Return what *head* asks for; it ends before the last of its line ends."""
    lines = head.split(b"\r\n")
    try:
        if any(re.search(_ODD, line) for line in lines):
            raise _Wrong("a line of the head ends in something else than CR LF, or holds a control")
        method, target, version = _request_line(lines[0])
        fields = _fields(lines[1:])
        if method == b"CONNECT":
            return _tunnel(target, version, fields)
        return _plain(method, target, version, fields)
    except _Wrong as wrong:
        return wrong.refusal


def _request_line(line: bytes) -> tuple[bytes, str, bytes]:
    """Return method, target and the last figure of the version."""
    match = re.fullmatch(_REQUEST_LINE, line)
    if match is None:
        raise _Wrong("the first line is no request of HTTP")
    if match[3] != b"1" or match[4] not in (b"0", b"1"):
        raise _Wrong("this is a proxy of HTTP/1.1", Why.VERSION)
    try:
        return match[1], match[2].decode("ascii"), match[4]
    except UnicodeDecodeError:
        raise _Wrong("the target of the request is not ASCII") from None


def _fields(lines: list[bytes]) -> Fields:
    if len(lines) > _FIELDS_AT_MOST:
        raise _Wrong(f"a request has at most {_FIELDS_AT_MOST} fields", Why.TOO_LARGE)
    found = Fields()
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon or not re.fullmatch(_TOKEN, name):
            raise _Wrong("a line of the head is no field")
        found.append((name.lower(), value.strip(b" \t")))
    return found


def _only(fields: Fields, name: bytes) -> bytes | None:
    """Return the value of the one field *name*; None if there is none."""
    values = [value for field, value in fields if field == name]
    if len(values) > 1:
        raise _Wrong(f"the field {name.decode()} stands there twice")
    return values[0] if values else None


def _tunnel(target: str, version: bytes, fields: Fields) -> Tunnel:
    if "/" in target:
        raise _Wrong("CONNECT takes HOST:PORT, and no address of a page")
    asked = _place(parse_endpoint, target)
    _check_host(asked, version, fields)
    if _only(fields, b"transfer-encoding") is not None or _length(fields):
        raise _Wrong("CONNECT has no body")
    return Tunnel(asked)


def _plain(method: bytes, target: str, version: bytes, fields: Fields) -> PlainRequest:
    if method not in _PLAIN_METHODS:
        raise _Wrong("that method goes through no proxy", Why.METHOD)
    scheme, is_absolute, rest = target.partition("://")
    if not is_absolute or "/" in scheme:
        raise _Wrong("this is a proxy: it takes CONNECT HOST:PORT, or http://HOST/")
    if scheme.lower() != "http":
        raise _Wrong("what goes through TLS is asked for with CONNECT")
    authority, path = _split_target(rest)
    asked = _place(_plain_place, authority)
    _check_host(asked, version, fields)
    if _only(fields, b"transfer-encoding") is not None:
        raise _Wrong("a body without Content-Length is not passed on", Why.LENGTH)
    length = _length(fields)
    own = [b"Host: " + str(asked).removeprefix("http://").encode("ascii")]
    if length is not None:
        own.append(b"Content-Length: %d" % length)
    first = method + b" " + path.encode("ascii") + b" HTTP/1.1"
    head = [first, *own, *_passed_on(fields), b"Connection: close", b"", b""]
    return PlainRequest(asked, b"\r\n".join(head), length or 0)


def _split_target(rest: str) -> tuple[str, str]:
    """Return the host in the target of a request, and the path and query behind it."""
    if "#" in rest:
        raise _Wrong("the target of a request has no fragment")
    authority = re.split(r"[/?]", rest, maxsplit=1)[0]
    path = rest[len(authority) :]
    return authority, path if path.startswith("/") else f"/{path}"


def _plain_place(authority: str) -> Destination:
    if not _has_port(authority):
        return Destination(parse_host(authority), PLAIN_PORT, plain=True)
    return parse_endpoint(authority)._replace(plain=True)


def _place(parse: Callable[[str], Destination], text: str) -> Destination:
    """Return the place that *parse* finds in *text*."""
    if "@" in text:
        raise _Wrong("no user stands before the host")
    try:
        return parse(text)
    except ValueError as exc:
        raise _Wrong(str(exc)) from exc


def _length(fields: Fields) -> int | None:
    value = _only(fields, b"content-length")
    if value is None:
        return None
    if not re.fullmatch(rb"[0-9]{1,13}", value) or int(value) > _LONGEST_BODY:
        raise _Wrong("Content-Length is no length")
    return int(value)


def _check_host(asked: Destination, version: bytes, fields: Fields) -> None:
    """Refuse a field Host that names another place than the request itself."""
    host = _only(fields, b"host")
    if host is None:
        if version == b"1":
            raise _Wrong("the field host is missing")
        return
    text = host.decode("ascii", "replace").lower()
    has_port = _place(parse_endpoint, text) if _has_port(text) else None
    # Without a port it leaves that to the request: so do clients that mean the usual one.
    named = has_port or _place(lambda it: Destination(parse_host(it), asked.port), text)
    is_us = not asked.plain and named.host in _THIS_PROXY
    if (named.host, named.port) != (asked.host, asked.port) and not is_us:
        raise _Wrong("the field host names another place than the request")


def _has_port(authority: str) -> bool:
    return not authority.endswith("]") and ":" in authority


def _passed_on(fields: Fields) -> list[bytes]:
    """Return the lines of *fields* that are for the server, and not for us."""
    named = {
        name.strip().lower()
        for field, value in fields
        if field == b"connection"
        for name in value.split(b",")
    }
    return [
        name + b": " + value
        for name, value in fields
        if name not in _OF_THIS_HOP | named and not name.startswith(b"proxy-")
    ]
