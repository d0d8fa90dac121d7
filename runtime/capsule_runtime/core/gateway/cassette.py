"""Model calls that were recorded: how they are written, and which one answers a call.

A cassette is JSON lines: its version, then a line for each call that was answered whole. No line has
a key or a header that could hold one. A call is known by a digest of what it asks; what differs from
run to run though nothing else is asked is left out: who asks (ids of users, sessions and caches), and in
texts dates, times and long random ids.
"""

from __future__ import annotations

import hashlib
import json
import re
from base64 import b64decode, b64encode
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct

from capsule_runtime.core.gateway.apis import Api
from capsule_runtime.core.relaying import Header

VERSION = 1
MOST_BYTES = 16 * 1024 * 1024
"""Of one answer. What is longer is not recorded."""
Miss = Literal["strict", "lenient"]
"""What a call gets that was not recorded: nothing, or the next one of its model."""

_KEPT_HEADERS = frozenset((b"content-type", b"retry-after"))
_WHO_ASKS = frozenset(
    ("metadata", "user", "prompt_cache_key", "safety_identifier", "session_id", "client_metadata")
)
_CHANGING = re.compile(
    r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?"
    r"|(?:Mon|Tues?|Wed(?:nes)?|Thu(?:rs)?|Fri|Sat(?:ur)?|Sun)(?:day)?,? [A-Z][a-z]+ \d{1,2},? \d{4}"
    r"|\d{1,2}/\d{1,2}/\d{4}"
    r"|[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"
    r"|[0-9a-fA-F]{24,}"
)
_ANY = "…"


class Start(Struct, frozen=True, tag_field="line", tag="cassette"):
    """The first line."""

    version: int = VERSION


class Recorded(Struct, frozen=True, tag_field="line", tag="call", omit_defaults=True):
    """One call: what it asked, as a digest, and what it was answered."""

    digest: str
    api: Api
    model: str
    streams: bool
    status: int
    headers: tuple[tuple[str, str], ...]
    text: str | None = None
    base64: str | None = None
    """Of a body that is no text."""

    @property
    def body(self) -> bytes:
        """Return what was answered."""
        return b64decode(self.base64) if self.base64 is not None else (self.text or "").encode()


Line = Start | Recorded
_line = msgspec.json.Decoder(Line)


class Unplayable(Exception):
    """A cassette cannot be read: the number of its *line*, and why."""

    def __init__(self, line: int, why: str) -> None:
        super().__init__(f"line {line}: {why}")


def digest_of(path: str, members: Mapping[str, Any]) -> str:
    """Return what is the same for all calls that ask *path* for the same."""
    kept = {key: value for key, value in members.items() if key not in _WHO_ASKS}
    asked = json.dumps([path, kept], sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    plain = _CHANGING.sub(_ANY, asked)
    return hashlib.sha256(plain.encode("utf-8", "surrogatepass")).hexdigest()


def recorded(
    digest: str,
    api: Api,
    model: str,
    *,
    streams: bool,
    status: int,
    headers: Sequence[Header],
    body: bytes,
) -> Recorded:
    """Return a call as it is written."""
    kept = tuple((n.decode(), v.decode("latin-1")) for n, v in headers if n in _KEPT_HEADERS)
    try:
        text, base64 = body.decode(), None
    except UnicodeDecodeError:
        text, base64 = None, b64encode(body).decode()
    return Recorded(digest, api, model, streams, status, kept, text, base64)


def line_of(line: Line) -> bytes:
    """Return *line* as it is written."""
    return msgspec.json.encode(line) + b"\n"


class Cassette:
    """What was recorded, and what of it has been played."""

    def __init__(self, calls: Iterable[Recorded]) -> None:
        self._left: dict[str, deque[Recorded]] = {}
        self._order = deque(calls)
        for call in self._order:
            self._left.setdefault(call.digest, deque()).append(call)
        self._played = set[int]()

    @classmethod
    def read(cls, data: bytes) -> Cassette:
        """Return the cassette that *data* is.

        Raises:
            Unplayable: it is none, or its last line was cut off.
        """
        if data and not data.endswith(b"\n"):
            raise Unplayable(data.count(b"\n") + 1, "it was cut off while it was written")
        lines = list[Line]()
        for number, text in enumerate(data.splitlines(), 1):
            try:
                lines.append(_line.decode(text))
            except (msgspec.DecodeError, UnicodeDecodeError) as exc:
                raise Unplayable(number, f"it is no line of a cassette: {exc}") from exc
        if not lines or not isinstance(lines[0], Start) or lines[0].version != VERSION:
            raise Unplayable(1, f"no cassette of version {VERSION} begins so")
        return cls(line for line in lines if isinstance(line, Recorded))

    def play(self, digest: str) -> Recorded | None:
        """Return the next call of that *digest*; each is played once."""
        left = self._left.get(digest)
        while left:
            call = left.popleft()
            if id(call) not in self._played:
                self._played.add(id(call))
                return call
        return None

    def play_next(self, api: Api, model: str, *, streams: bool) -> Recorded | None:
        """Return the next call to *model* of that form that was not played yet."""
        for call in self._order:
            if id(call) in self._played or (call.api, call.model) != (api, model):
                continue
            if call.streams == streams:
                self._played.add(id(call))
                return call
        return None
