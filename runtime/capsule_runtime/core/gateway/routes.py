"""Which requests there are: a method and a path for each, and all else is refused.

A target is read in one way only, so that nobody behind can read it in another: it must be a path
(no absolute form, no `*`), in the case that it is published in, without percent-encoding, doubled
or trailing slashes, dots as segments, backslashes, semicolons, fragments or blanks. No path that is
served needs any of these. A query may have the parameters that are named here, each of them once
and plain. What goes to the provider is composed anew from what was understood.

`calls` cost money; counting tokens and listing models is free at every provider named here.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from capsule_runtime.core.gateway.apis import Api

_LONGEST = 1024
_PATH = re.compile(r"(?:/[A-Za-z0-9_~:-][A-Za-z0-9._~:-]*)+")
_PARAMETER = re.compile(r"([$A-Za-z_][A-Za-z0-9_.-]*)=([A-Za-z0-9._~-]*)")
_MODEL = r"([A-Za-z0-9][A-Za-z0-9._-]{0,127})"
_LIST = frozenset({"limit", "before_id", "after_id", "client_version", "pageSize", "pageToken"})
_NONE = frozenset[str]()
_DROPPED = frozenset({"key"})
"""A client may carry its key in the query. It is a marker, and may not stand beside the real one."""

Kind = Literal["call", "count", "list"]


class Route(Struct, frozen=True):
    """What a request is, and where it goes: *path* below the provider's base, and *query*.

    *model* and *streams* are told where the path tells them.
    """

    api: Api
    kind: Kind
    method: str
    path: str
    query: str = ""
    model: str | None = None
    streams: bool | None = None

    @property
    def is_free(self) -> bool:
        """Whether the provider charges nothing for it."""
        return self.kind != "call"

    @property
    def target(self) -> str:
        """Return what follows the provider's base URL."""
        return f"{self.path}?{self.query}" if self.query else self.path

    def renamed(self, model: str) -> Route:
        """Return the way to *model*, where the path tells the model.

        Raises:
            ValueError: *model* cannot stand in a path.
        """
        if self.model is None:
            return self
        if not re.fullmatch(_MODEL, model):
            raise ValueError(f"{model!r} cannot stand in a path")
        head, _, tail = self.path.partition(f"/models/{self.model}")
        return replace(self, path=f"{head}/models/{model}{tail}", model=model)


class NoRoute(Struct, frozen=True):
    """There is no such way, and *why*. *status* is 404, 405 where only the method is wrong."""

    why: str
    status: Literal[404, 405] = 404


class _Way(NamedTuple):
    """What is served: *pattern* of the path, whose group is a model."""

    method: str
    pattern: re.Pattern[str]
    kind: Kind
    parameters: frozenset[str] = _NONE
    streams: bool | None = None
    """Whether the answer streams, where the path says so."""


def _way(
    method: str,
    pattern: str,
    kind: Kind,
    parameters: frozenset[str] = _NONE,
    streams: bool | None = None,
) -> _Way:
    return _Way(method, re.compile(pattern), kind, parameters, streams)


_V1 = "(?:/v1)?"
_VERSION = "/v1(?:alpha|beta)?"
_BETA = frozenset({"beta"})
_ALT = frozenset({"alt"})
_WAYS: dict[Api, tuple[_Way, ...]] = {
    Api.MESSAGES: (
        _way("POST", f"{_V1}/messages", "call", _BETA),
        _way("POST", f"{_V1}/messages/count_tokens", "count", _BETA),
        _way("GET", f"{_V1}/models", "list", _LIST | _BETA),
        _way("GET", f"{_V1}/models/{_MODEL}", "list", _BETA),
    ),
    Api.CHAT: (
        _way("POST", f"{_V1}/chat/completions", "call"),
        _way("GET", f"{_V1}/models", "list", _LIST),
        _way("GET", f"{_V1}/models/{_MODEL}", "list"),
    ),
    Api.RESPONSES: (
        _way("POST", f"{_V1}/responses", "call"),
        _way("POST", f"{_V1}/responses/input_tokens", "count"),
        _way("GET", f"{_V1}/models", "list", _LIST),
        _way("GET", f"{_V1}/models/{_MODEL}", "list"),
    ),
    Api.GENERATE: (
        _way("POST", f"{_VERSION}/models/{_MODEL}:generateContent", "call", _ALT, False),
        _way("POST", f"{_VERSION}/models/{_MODEL}:streamGenerateContent", "call", _ALT, True),
        _way("POST", f"{_VERSION}/models/{_MODEL}:countTokens", "count", _ALT),
        _way("GET", f"{_VERSION}/models", "list", _LIST | _ALT),
        _way("GET", f"{_VERSION}/models/{_MODEL}", "list", _ALT),
    ),
}


def find_route(api: Api, method: str, target: str, base: str = "") -> Route | NoRoute:
    """Return what *method* and *target* of a request line mean, below the path *base*."""
    plain = _plain(target, base)
    if isinstance(plain, NoRoute):
        return plain
    path, query = plain
    fitting = [(way, found) for way in _WAYS[api] if (found := way.pattern.fullmatch(path))]
    if not fitting:
        return NoRoute("this path is not served here")
    for way, found in fitting:
        if way.method == method:
            return _route(api, way, found, query)
    return NoRoute(f"only {fitting[0][0].method} is served at this path", 405)


def _plain(target: str, base: str) -> tuple[str, str] | NoRoute:
    """Return path and query of *target*, below *base*, if there is one way to read them."""
    if len(target) > _LONGEST:
        return NoRoute("this target is too long")
    path, mark, query = target.partition("?")
    if not _PATH.fullmatch(path):
        return NoRoute("this target is not a plain path")
    if mark and not query:
        return NoRoute("this target has an empty query")
    if not path.startswith(f"{base}/"):
        return NoRoute("this path is not served here")
    return path[len(base) :], query


def _route(api: Api, way: _Way, found: re.Match[str], query: str) -> Route | NoRoute:
    parameters = _parameters(query)
    if parameters is None:
        return NoRoute("this query is not plain")
    if strange := sorted(parameters.keys() - way.parameters - _DROPPED):
        return NoRoute(f"the query parameter {strange[0]!r} is not served here")
    kept = {name: value for name, value in parameters.items() if name not in _DROPPED}
    if (why := _unfit_form(way, kept)) is not None:
        return NoRoute(why)
    written = "&".join(f"{name}={value}" for name, value in kept.items())
    model = found[1] if found.re.groups else None
    return Route(api, way.kind, way.method, found[0], written, model, way.streams)


def _unfit_form(way: _Way, parameters: dict[str, str]) -> str | None:
    """Return why an answer in the form that *parameters* ask for is not served, if it is not."""
    form = parameters.get("alt", "json")
    if way.streams and form != "sse":
        return "streams are served as server-sent events only: alt=sse"
    if not way.streams and form != "json":
        return f"the form {form!r} is not served here"
    return None


def _parameters(query: str) -> dict[str, str] | None:
    """Return the parameters of *query*; None if they are not plain or come twice."""
    if not query:
        return {}
    pairs = [_PARAMETER.fullmatch(part) for part in query.split("&")]
    found = {pair[1]: pair[2] for pair in pairs if pair}
    return found if len(found) == len(pairs) else None
