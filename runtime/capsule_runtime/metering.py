"""One call that went on: its answer is read while it passes, and at its end it is settled."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import anyio

from capsule_runtime.call_book import CallBook
from capsule_runtime.core.call_facts import CallEnded
from capsule_runtime.core.gateway.admission import Admission
from capsule_runtime.core.gateway.asked import Asked
from capsule_runtime.core.gateway.reservations import Amount
from capsule_runtime.core.gateway.settling import (
    Charge,
    Meter,
    Told,
    charge_of,
    report_of,
    with_lifetimes,
)
from capsule_runtime.core.prices import Price
from capsule_runtime.core.relaying import Ending, Header
from capsule_runtime.host.clock import Clock

_NOT_SENT = Told("error", was_refused=True)
_NOT_HEARD = Told("cut")


class OpenCall(NamedTuple):
    """A call that is under way: what it asks, what is held for it, and what its tokens cost."""

    id: str
    asked: Asked
    priced_as: str
    """As `provider:id`."""
    price: Price | None
    admission: Admission
    swallows: bool
    """Whether the usage at the end of its stream was asked for by us alone."""


class CallMeter:
    """Watch one call of a run."""

    def __init__(
        self, call: OpenCall, book: CallBook, clock: Clock, place: anyio.Semaphore | None
    ) -> None:
        """*place* is given back at the end of the call."""
        self._call = call
        self._book = book
        self._clock = clock
        self._place = place
        self._began = clock.moment().now
        self._first: float | None = None
        self._status: int | None = None
        self._meter: Meter | None = None
        self._told: Told | None = None

    def head(self, status: int, headers: Sequence[Header]) -> None:
        call = self._call
        kind = next((value for name, value in headers if name == b"content-type"), b"")
        self._first, self._status = self._clock.moment().now, status
        self._meter = Meter(
            call.asked.api,
            call.priced_as,
            status=status,
            is_stream=kind.lower().startswith(b"text/event-stream"),
            swallows=call.swallows,
        )

    def chunk(self, data: bytes) -> bytes:
        if self._meter is None:
            return data
        if data:
            return self._meter.feed(data)
        rest, self._told = self._meter.close()
        return rest

    async def end(self, ending: Ending) -> None:
        try:
            await self._settle(ending)
        finally:
            if self._place is not None:
                self._place.release()

    async def _settle(self, ending: Ending) -> None:
        call = self._call
        told = with_lifetimes(self._what_was_told(ending), call.asked.caches_for)
        charge = charge_of(told, call.price, call.admission.worst)
        is_unsettled = _is_unsettled(told)
        _enter(call, charge, is_unsettled=is_unsettled)
        amount = call.admission.reservation.worst if is_unsettled else _amount(charge)
        now = self._clock.moment().now
        ended = partial(
            CallEnded,
            call=call.id,
            status="unsent" if ending is Ending.UNSENT else told.status,
            http_status=self._status,
            usage=report_of(told.usage, call.id) if told.usage is not None else None,
            model=told.model,
            microusd=amount.microusd,
            tokens=amount.tokens,
            is_estimate=charge.is_estimate and not is_unsettled,
            is_unsettled=is_unsettled,
            ms=_ms(now - self._began),
            first_ms=None if self._first is None else _ms(self._first - self._began),
        )
        await self._book.write(ended)

    def _what_was_told(self, ending: Ending) -> Told:
        if ending is Ending.UNSENT:
            return _NOT_SENT
        if self._told is not None:
            return self._told
        if self._meter is None:
            return _NOT_HEARD
        return self._meter.close(is_cut=True)[1]


def _is_unsettled(told: Told) -> bool:
    """Whether the call was cut off before it told what it used."""
    return told.status == "cut" and not told.is_final and not told.was_refused


def _enter(call: OpenCall, charge: Charge, *, is_unsettled: bool) -> None:
    """End what is held for *call* in the accounts."""
    held = call.admission.reservation
    if is_unsettled:
        held.leave_unsettled()
    elif charge.is_estimate:
        held.charge_estimate(_amount(charge))
    else:
        held.settle(_amount(charge))


def _amount(charge: Charge) -> Amount:
    return Amount(charge.microusd, charge.tokens)


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
