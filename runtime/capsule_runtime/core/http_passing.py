"""Which headers pass the gateway, each way, and in which form a target does."""

from __future__ import annotations

import re
from collections.abc import Iterable

from capsule_runtime.core.relaying import Forward, Header

KEY_HEADERS = frozenset(
    (
        b"authorization",
        b"proxy-authorization",
        b"x-api-key",
        b"x-goog-api-key",
        b"api-key",
        b"cookie",
    )
)
"""What a client says by these names is a marker at best, and goes nowhere."""
_HOP_BY_HOP = frozenset(
    (
        b"connection",
        b"content-length",
        b"expect",
        b"http2-settings",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    )
)
_OURS = frozenset((b"host", b"accept-encoding", b"forwarded", b"x-forwarded-for", b"via"))
_PASSED = frozenset(
    (
        b"accept",
        b"accept-language",
        b"anthropic-beta",
        b"anthropic-dangerous-direct-browser-access",
        b"anthropic-version",
        b"openai-beta",
        b"originator",
        b"session_id",
        b"user-agent",
        b"version",
        b"x-app",
        b"x-client-request-id",
        b"x-goog-api-client",
    )
)
"""What a provider is told of a client. Any other header could have another one pay, the answer be cut
to what tells less, the method or path be another, or the call go elsewhere, with the key."""
_PASSED_KINDS = (b"x-stainless-",)
_JSON = frozenset((b"application/json", b"application/json; charset=utf-8"))
_HELD_BACK = frozenset(
    (
        b"alt-svc",
        b"content-location",
        b"location",
        b"refresh",
        b"set-cookie",
        b"strict-transport-security",
    )
)
"""These would lead the client elsewhere, or bind it to a server it does not speak to."""
_KEY_PARAMETERS = frozenset(("key", "api_key", "api-key", "access_token", "oauth_token"))
_ESCAPED = re.compile(r"%([0-9A-Fa-f]{2})")


def headers_upstream(said: Iterable[Header], forward: Forward) -> list[Header]:
    """Return the headers of *forward*, of which the client *said* some.

    Exactly one of them is a key, if *forward* has one.
    """
    said = tuple(said)
    replaced = {name for name, _ in forward.headers}
    dropped = _HOP_BY_HOP | KEY_HEADERS | _OURS | _named_by_connection(said)
    credential = forward.credential
    dropped |= {credential.header} if credential else frozenset()
    headers = [(b"host", forward.origin.authority.encode()), (b"accept-encoding", b"identity")]
    headers += [it for it in said if _passes(it) and it[0] not in dropped | replaced]
    headers += [field for field in forward.headers if field[0] not in dropped]
    if credential:
        headers.append((credential.header, credential.reveal()))
    return headers


def _passes(header: Header) -> bool:
    name, value = header
    if name == b"content-type":
        return value.lower() in _JSON
    return name in _PASSED or name.startswith(_PASSED_KINDS)


def headers_downstream(heard: Iterable[Header], secret: bytes) -> list[Header]:
    """Return what the client hears of the headers that were *heard*; none shows the *secret*."""
    heard = [(name.lower(), value) for name, value in heard]
    dropped = _HOP_BY_HOP | _HELD_BACK | _named_by_connection(heard)
    return [
        (name, value)
        for name, value in heard
        if name not in dropped and not (secret and secret in value)
    ]


def _named_by_connection(headers: Iterable[Header]) -> frozenset[bytes]:
    """Return the headers that the sender meant for the next hop alone."""
    options = [value for name, value in headers if name == b"connection"]
    return frozenset(option.strip().lower() for value in options for option in value.split(b","))


def target_upstream(forward: Forward) -> str:
    """Return the target of *forward*, beneath the base of its origin, without a key in its query."""
    path, mark, query = forward.target.partition("?")
    kept = [part for part in re.split("[&;]", query) if not _is_key(part)]
    if len(kept) != len(re.split("[&;]", query)):
        query = "&".join(kept)
    return forward.origin.base + path + (mark + query if query else "")


def _is_key(part: str) -> bool:
    name = part.partition("=")[0]
    plain = _ESCAPED.sub(lambda found: chr(int(found[1], 16)), name).strip(" +").lower()
    return plain in _KEY_PARAMETERS
