"""What the gateway of one run lets pass: each call is judged, and held for, before it is sent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from secrets import compare_digest
from typing import assert_never

import anyio
from msgspec.structs import replace

from capsule_runtime.call_book import CallBook
from capsule_runtime.call_ways import (
    Refusal,
    Way,
    as_answer,
    forwarded,
    free_call,
    keys_in,
    leave,
    read_call,
    route_of,
)
from capsule_runtime.cassettes import play, taped
from capsule_runtime.core.call_facts import CallRefused, CallStarted
from capsule_runtime.core.day_share import Needs, Share
from capsule_runtime.core.gateway.admission import (
    Admission,
    Declined,
    Rules,
    Uncertain,
    admit,
    demand,
)
from capsule_runtime.core.gateway.apis import Api
from capsule_runtime.core.gateway.asked import Asked
from capsule_runtime.core.gateway.bounds import Model
from capsule_runtime.core.gateway.counting import question_of
from capsule_runtime.core.gateway.edits import Edit, IncludeUsage, RenameModel, edited, needs_usage
from capsule_runtime.core.gateway.reading import Request
from capsule_runtime.core.gateway.refusals import Cause
from capsule_runtime.core.gateway.reservations import NOTHING
from capsule_runtime.core.gateway.routes import Route
from capsule_runtime.core.journal import day_of
from capsule_runtime.core.relaying import Answer, RequestHead
from capsule_runtime.gateway_plan import GatewayPlan
from capsule_runtime.host.clock import Clock, new_id
from capsule_runtime.host.gateway import Admitted, Upstreams
from capsule_runtime.host.gateway.asking import count_at
from capsule_runtime.metering import CallMeter, OpenCall

ReserveOfDay = Callable[[Needs], Awaitable[Share]]
_UNRECORDED: frozenset[Cause] = frozenset(("no-route", "wrong-method"))
"""Programs knock at many doors; what they wanted there is no call of a model."""


class Gatekeeper:
    """The policy of one run's gateway."""

    def __init__(
        self,
        plan: GatewayPlan,
        book: CallBook,
        clock: Clock,
        upstreams: Upstreams,
        reserve: ReserveOfDay | None = None,
    ) -> None:
        """*reserve* gets the run more of the day, where the day has ceilings."""
        self._plan = plan
        self._account = plan.account
        self._book = book
        self._clock = clock
        self._upstreams = upstreams
        self._reserve = reserve
        self._ways = {name: Way(served) for name, served in plan.served.items()}
        self._turn = anyio.Lock()
        """Held by whoever takes room: what one asks of the day the next one finds there."""
        self._over: Declined | None = None
        """Why nothing passes any more."""

    async def admit(self, head: RequestHead, body: bytes) -> Admitted | Answer:
        name = head.target.split("/", 2)[1]
        way = self._ways.get(name)
        api = way.provider.apis[0] if way else Api.MESSAGES
        try:
            if way is None:
                raise Refusal(api, Declined("no-route", "no provider of the run is called so"))
            self._check_marker(head, api)
            route = route_of(way, head)
            api = route.api
            await self._enter(way, api)
            try:
                if route.is_free and self._plan.player is not None:
                    raise Refusal(api, Declined("not-recorded", "what is free is not recorded"))
                if route.is_free:
                    return free_call(way, route, body)
                if self._plan.player is not None:
                    answer = await play(self._plan, self._book, way, route, head, body)
                    leave(way)
                    return answer
                return await self._call(way, route, head, body)
            except BaseException:
                leave(way)
                raise
        except Refusal as refusal:
            return await self._answer(name, refusal)

    def _check_marker(self, head: RequestHead, api: Api) -> None:
        if not self._plan.needs_marker:
            return
        marker = self._plan.marker.encode()
        if not any(compare_digest(key, marker) for key in keys_in(head)):
            raise Refusal(api, Declined("no-key", "this gateway is another run's"))

    async def _enter(self, way: Way, api: Api) -> None:
        """Wait for a place among the calls at once; nobody waits for his turn in the minute."""
        if self._over is not None:
            raise Refusal(api, self._over)
        if way.places is not None:
            await way.places.acquire()
        wait = way.pace.begin(self._clock.moment().now)
        if wait is not None:
            leave(way)
            many = way.provider.limits.requests_per_minute
            declined = Declined("rate-limited", f"more than {many} calls a minute")
            raise Refusal(api, declined, retry_after=wait)

    async def _call(self, way: Way, route: Route, head: RequestHead, body: bytes) -> Admitted:
        request = await read_call(route, head, body)
        asked, edits = self._renamed(way, request.asked)
        if not way.provider.limits.allows(asked.model):
            message = f"config.toml does not let {asked.model} be called"
            raise Refusal(route.api, Declined("model-not-allowed", message), asked.model)
        priced_as = f"{way.provider.prices}:{asked.model}"
        rules = self._rules(way, priced_as)
        admission, counted = await self._admitted(way, route, head, request, asked, rules)
        try:
            if admission.cap is not None:
                edits.append(admission.cap)
            swallows = needs_usage(asked)
            if swallows:
                edits.append(IncludeUsage())
            call = OpenCall(
                new_id("call"), asked, priced_as, rules.model.price, admission, swallows
            )
            await self._write_start(way, call, counted)
        except BaseException:
            admission.reservation.release()
            raise
        target = route.renamed(asked.model).target if asked.model != request.asked.model else ""
        changed = edited(request, *edits) if edits else body
        forward = forwarded(way, target or route.target, changed)
        meter = CallMeter(call, self._book, self._clock, way.places)
        return Admitted(forward, taped(self._plan, self._book, meter, route, request))

    def _renamed(self, way: Way, asked: Asked) -> tuple[Asked, list[Edit]]:
        alias = way.provider.limits.aliases.get(asked.model)
        if alias is None:
            return asked, []
        return replace(asked, model=alias), [RenameModel(alias)]

    def _rules(self, way: Way, priced_as: str) -> Rules:
        limits, prices = way.provider.limits, self._plan.prices
        price = prices.find(priced_as) if prices is not None else None
        return Rules(
            Model(price),
            limits.max_output_tokens,
            frozenset(limits.features),
            way.provider.chat_cap,
            self._plan.ceilings.on_unmetered == "allow",
        )

    async def _admitted(
        self,
        way: Way,
        route: Route,
        head: RequestHead,
        request: Request,
        asked: Asked,
        rules: Rules,
    ) -> tuple[Admission, int | None]:
        """Take room for the call; return what holds it, and what the counter said, if it was asked."""
        # Another model may count otherwise: of one that is called by another's name nobody asks.
        is_as_asked = asked.model == request.asked.model
        question, counted = question_of(route, request) if is_as_asked else None, None
        may_count = question is not None
        while True:
            async with self._turn:
                await self._ask_of_day(asked, rules, counted, may_count=may_count)
                verdict = admit(self._account, asked, rules, counted, may_count=may_count)
            match verdict:
                case Admission():
                    return verdict, counted
                case Declined():
                    raise Refusal(route.api, verdict, asked.model)
                case Uncertain():
                    assert question is not None
                    target = f"{question.path}?{question.query}".rstrip("?")
                    forward = forwarded(way, target, question.body)
                    counted = await count_at(self._upstreams, forward, head)
                    may_count = False
                case _:
                    assert_never(verdict)

    async def _ask_of_day(
        self, asked: Asked, rules: Rules, counted: int | None, *, may_count: bool
    ) -> None:
        """See to it that the run holds enough of the day for the call, if there is enough.

        As long as the provider can be asked how long the call is, no more than there is is asked for.
        """
        account = self._plan.of_day
        if self._reserve is None:
            return
        today = day_of(self._clock.moment().at)
        wanted = demand(self._account, asked, rules, counted) or NOTHING
        if self._plan.day == today and (may_count or account.lack(wanted) is None):
            return
        taken, call = account.taken, NOTHING if may_count else wanted
        share = await self._reserve(Needs(taken.microusd, taken.tokens, call.microusd, call.tokens))
        self._plan.hold(share)

    async def _write_start(self, way: Way, call: OpenCall, counted: int | None) -> None:
        held, cap = call.admission.reservation.worst, call.admission.cap
        await self._book.write(
            partial(
                CallStarted,
                call=call.id,
                provider=way.provider.name,
                model=call.asked.model,
                api=call.asked.api.value,
                microusd=held.microusd,
                tokens=held.tokens,
                cap=None if cap is None else cap.tokens,
                counted=counted,
            )
        )

    async def _answer(self, name: str, refusal: Refusal) -> Answer:
        """Write that a call was refused, and return what its caller hears."""
        declined = refusal.declined
        if declined.ceiling is not None:
            self._over = self._over or declined
        if declined.cause not in _UNRECORDED:
            await self._book.refuse(
                partial(
                    CallRefused,
                    provider=name,
                    cause=declined.cause,
                    message=declined.message,
                    model=refusal.model,
                ),
                declined.message,
                declined.ceiling,
            )
        return as_answer(refusal)
