"""Requests of a run on their way in: which way they go, what they ask, and what a refused one hears."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, assert_never

import anyio
import anyio.to_thread

from capsule_runtime.core.gateway.admission import Declined
from capsule_runtime.core.gateway.apis import Api
from capsule_runtime.core.gateway.json_text import Malformed, TooLarge
from capsule_runtime.core.gateway.pace import Pace
from capsule_runtime.core.gateway.reading import Request, read_request
from capsule_runtime.core.gateway.refusals import Cause, refused
from capsule_runtime.core.gateway.routes import NoRoute, Route, find_route
from capsule_runtime.core.http_passing import KEY_HEADERS
from capsule_runtime.core.relaying import Answer, Ending, Forward, Header, RequestHead
from capsule_runtime.gateway_plan import Served
from capsule_runtime.host.gateway import Admitted

_READ_AT_ONCE_BYTES = 64 * 1024
_WRONG_METHOD = 405


class Refusal(Exception):
    """Raised where a call goes no further."""

    def __init__(
        self,
        api: Api,
        declined: Declined,
        model: str = "",
        *,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(declined.message)
        self.api = api
        self.declined = declined
        self.model = model
        self.retry_after = retry_after


class Way:
    """What the calls of one run to one provider share."""

    def __init__(self, served: Served) -> None:
        limits = served.provider.limits
        self.provider, self.credential = served
        self.pace = Pace(limits.requests_per_minute)
        self.places = anyio.Semaphore(limits.concurrent_calls) if limits.concurrent_calls else None


def as_answer(refusal: Refusal) -> Answer:
    """Return what the caller of a call hears that was refused."""
    declined, wait = refusal.declined, refusal.retry_after
    seconds = None if wait is None else math.ceil(wait)
    made = refused(refusal.api, declined.cause, f"capsule gateway: {declined.message}", seconds)
    headers = tuple((name.encode(), value.encode()) for name, value in made.headers)
    return Answer(made.status, headers, made.body)


def route_of(way: Way, head: RequestHead) -> Route:
    """Return which request this is.

    Raises:
        Refusal: it is none that is served.
    """
    base, found = f"/{way.provider.name}", list[NoRoute]()
    for api in way.provider.apis:
        route = find_route(api, head.method, head.target, base)
        if isinstance(route, Route):
            return route
        found.append(route)
    wrong = next((it for it in found if it.status == _WRONG_METHOD), found[0])
    cause: Cause = "wrong-method" if wrong.status == _WRONG_METHOD else "no-route"
    raise Refusal(way.provider.apis[0], Declined(cause, wrong.why))


async def read_call(route: Route, head: RequestHead, body: bytes) -> Request:
    """Return what a call asks for; a large body is read in a thread.

    Raises:
        Refusal: the body is no request.
    """
    betas = [beta for value in head.values(b"anthropic-beta") for beta in _listed(value)]
    if len(body) > _READ_AT_ONCE_BYTES:
        found = await anyio.to_thread.run_sync(read_request, route, body, betas)
    else:
        found = read_request(route, body, betas)
    match found:
        case Request():
            return found
        case Malformed(why):
            raise Refusal(route.api, Declined("malformed", why))
        case TooLarge():
            raise Refusal(route.api, Declined("too-large", "the body is too large"))
        case _:
            assert_never(found)


def _listed(value: bytes) -> list[str]:
    return [word.strip() for word in value.decode("latin-1").split(",") if word.strip()]


def forwarded(way: Way, target: str, body: bytes) -> Forward:
    """Return a request as it goes on, with the key of its provider."""
    provider = way.provider
    return Forward(provider.origin, provider.target(target), body, way.credential)


def free_call(way: Way, route: Route, body: bytes) -> Admitted:
    """Let a request go on that costs nothing."""
    return Admitted(forwarded(way, route.target, body), _FreeMeter(way))


class _FreeMeter:
    """Watch a call that costs nothing: it gives its place back."""

    def __init__(self, way: Way) -> None:
        self._way = way

    def head(self, status: int, headers: Sequence[Header]) -> None:
        pass

    def chunk(self, data: bytes) -> bytes:
        return data

    async def end(self, ending: Ending) -> None:
        leave(self._way)


def leave(way: Way) -> None:
    """Give a place among the calls at once back."""
    if way.places is not None:
        way.places.release()


def keys_in(head: RequestHead) -> list[bytes]:
    """Return what a caller shows as its key."""
    shown = [value for name in KEY_HEADERS for value in head.values(name)]
    bare = [value.removeprefix(b"Bearer ") for value in shown]
    query = head.target.partition("?")[2].encode("latin-1", "replace")
    return bare + [part.removeprefix(b"key=") for part in query.split(b"&")]


def values_of(request: Request) -> dict[str, Any]:
    """Return what the body of *request* says."""
    return {key: member.value for key, member in request.body.members.items()}
