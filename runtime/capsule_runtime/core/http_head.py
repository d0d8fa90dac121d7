"""The head of a request, read strictly: two readers of the same bytes must never disagree.

Whatever HTTP allows for the sake of old clients, and smugglers live on, is refused: bare line
feeds, folded lines, two lengths, a length beside chunks, absolute targets, names of odd bytes.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from capsule_runtime.core.relaying import Fault, Header, RequestHead

_END = b"\r\n\r\n"
_REQUEST = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,32}) ([\x21-\x7e]+) HTTP/([0-9]\.[0-9])")
_FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*)")
_LENGTH = re.compile(rb"[0-9]{1,18}")
_BODILESS = ("GET", "HEAD")
"""An upstream that ignores their bodies would take one for the next request, maybe another run's."""
_ONCE = (b"host", b"content-length", b"transfer-encoding", b"expect", b"content-type")


def end_of_head(data: bytes | bytearray) -> int:
    """Return where the body begins in *data*; -1 if the head has no end yet."""
    at = data.find(_END)
    return at if at < 0 else at + len(_END)


def read_head(raw: bytes, authorities: Collection[bytes], most_headers: int) -> RequestHead | Fault:
    """Return what *raw* asks for, a head with its end, of a server that has the names *authorities*."""
    first, *lines = raw.removesuffix(_END).split(b"\r\n")
    if (request := _REQUEST.fullmatch(first)) is None:
        return malformed("the request line has another form than METHOD TARGET HTTP/1.1")
    method, target, version = request.groups()
    if version != b"1.1":
        return Fault(505, "version", "only HTTP/1.1 is spoken here")
    if len(lines) > most_headers:
        return Fault(431, "headers", f"more than {most_headers} headers")
    fields = [_FIELD.fullmatch(line) for line in lines]
    headers = tuple((f[1].lower(), f[2].rstrip(b" \t")) for f in fields if f)
    if len(headers) != len(fields):
        return malformed("a header has another form than NAME: VALUE")
    head = RequestHead(method.decode(), target.decode(), headers)
    return _refusal(head, authorities) or head


def _refusal(head: RequestHead, authorities: Collection[bytes]) -> Fault | None:
    """Return why *head*, well-formed as it is, does not pass."""
    if head.method == "CONNECT":
        return Fault(405, "method", "there are no tunnels here")
    if not head.target.startswith("/") or "#" in head.target:
        return malformed("the target must be a path, without scheme, host and fragment")
    for name in _ONCE:
        if len(head.values(name)) > 1:
            return malformed(f"more than one {name.decode()}")
    if not head.values(b"host"):
        return malformed("no host")
    if head.values(b"host")[0].lower() not in authorities:
        return Fault(421, "host", "this is not the server that the host names")
    if head.values(b"upgrade"):
        return Fault(501, "upgrade", "no other protocol is spoken here")
    return (
        _framing_refusal(head.values(b"content-length"), head.values(b"transfer-encoding"))
        or _bodiless_refusal(head)
        or _expectation_refusal(head.values(b"expect"))
    )


def _framing_refusal(lengths: list[bytes], encodings: list[bytes]) -> Fault | None:
    if lengths and encodings:
        return malformed("a length beside chunks")
    if lengths and not _LENGTH.fullmatch(lengths[0]):
        return malformed("the length is no number")
    if encodings and encodings[0].lower() != b"chunked":
        return Fault(501, "transfer-encoding", "bodies come with a length, or chunked")
    return None


def _bodiless_refusal(head: RequestHead) -> Fault | None:
    if head.method in _BODILESS and declared_length(head) != 0:
        return malformed(f"a body for {head.method}")
    return None


def _expectation_refusal(expected: list[bytes]) -> Fault | None:
    if expected and expected[0].lower() != b"100-continue":
        return Fault(417, "expect", "100-continue is all that can be expected")
    return None


def malformed(message: str) -> Fault:
    """Return the fault of a request that is none."""
    return Fault(400, "malformed", message)


def declared_length(head: RequestHead) -> int | None:
    """Return how long the body is; None if only its end will tell."""
    if head.values(b"transfer-encoding"):
        return None
    lengths: list[bytes] = head.values(b"content-length")
    return int(lengths[0]) if lengths else 0


def wants_close(headers: tuple[Header, ...]) -> bool:
    """Tell whether nothing more comes on this connection."""
    named = [value.lower() for name, value in headers if name == b"connection"]
    return any(option.strip() == b"close" for value in named for option in value.split(b","))
