"""Calls of a run that are recorded, and calls that a recording answers."""

from __future__ import annotations

from capsule_runtime.call_book import CallBook
from capsule_runtime.call_ways import Refusal, Way, read_call, values_of
from capsule_runtime.core.gateway.admission import Declined
from capsule_runtime.core.gateway.cassette import digest_of
from capsule_runtime.core.gateway.reading import Request
from capsule_runtime.core.gateway.routes import Route
from capsule_runtime.core.relaying import Answer, RequestHead
from capsule_runtime.gateway_plan import GatewayPlan
from capsule_runtime.host.gateway import Meter
from capsule_runtime.host.gateway.recording import Taping

_SHOWN = 12


def taped(plan: GatewayPlan, book: CallBook, meter: Meter, route: Route, request: Request) -> Meter:
    """Return the meter of a call, which is recorded if the run's calls are."""
    asked = request.asked
    if plan.recorder is None:
        return meter
    return Taping(
        meter,
        plan.recorder,
        digest_of(route.path, values_of(request)),
        route.api,
        asked.model,
        streams=asked.streams,
        note=book.note,
    )


async def play(
    plan: GatewayPlan, book: CallBook, way: Way, route: Route, head: RequestHead, body: bytes
) -> Answer:
    """Return what the cassette answers a call; it costs nothing.

    Raises:
        Refusal: it was not recorded.
    """
    assert plan.player is not None, "there is something to be played"
    cassette, on_miss = plan.player
    request = await read_call(route, head, body)
    asked, digest = request.asked, digest_of(route.path, values_of(request))
    found = cassette.play(digest)
    if found is None and on_miss == "lenient":
        found = cassette.play_next(route.api, asked.model, streams=asked.streams)
    if found is None:
        message = f"no such call is in the cassette ({digest[:_SHOWN]})"
        raise Refusal(route.api, Declined("not-recorded", message), asked.model)
    await book.write_played(way.provider.name, asked.model, found, plan.account)
    headers = tuple((name.encode(), value.encode()) for name, value in found.headers)
    return Answer(found.status, headers, found.body)
