"""What a call used, read from its answer while that passes by.

An answer is plain: whoever asks for it asks for none that is compressed.

The bytes of the answer go on as they come; only the chunk with the usage that the gateway asked for
itself is left out, with all of its event and nothing else. While that is to be left out, an event is
held until it is complete, or too long to be it.

A provider charges nothing for what it refused: then the call is free. What ended as it should and
told its usage is charged so. For all else the reservation stands, marked as an estimate: a call that
was cut, that told nothing or something without a price, or that was served in another tier.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from capsule_runtime.core.calls import CallUsage
from capsule_runtime.core.gateway.answers import reader_of
from capsule_runtime.core.gateway.apis import Api
from capsule_runtime.core.gateway.asked import Lifetime
from capsule_runtime.core.gateway.bounds import Worst
from capsule_runtime.core.gateway.cassette import Recorded
from capsule_runtime.core.gateway.sse import MOST_BYTES, Event, EventReader
from capsule_runtime.core.money import FREE, UNKNOWN, Cost
from capsule_runtime.core.prices import Price, cost_of_call
from capsule_runtime.events import Usage

MOST_DOCUMENT = 16 * 1024 * 1024
"""Of an answer in one piece, to be read. A longer one is passed on, and its usage is not known."""
_STREAM = "text/event-stream"
_USUAL_TIERS = frozenset({None, "default", "standard", "auto", "on_demand"})
_REFUSED = frozenset({500, 503, 529})
"""Beside those of 400 and more: of these, too, providers say that nothing was charged."""
_MAYBE_SERVED = frozenset({408, 499})
"""Somebody gave up waiting; the model may not have."""

Status = Literal["ok", "error", "cut", "no-usage"]


class Told(Struct, frozen=True):
    """What an answer told. *model* is the one that answered, in the provider's words.

    *is_final*: the usage is that of the whole call. *was_refused*: no model was called.
    """

    status: Status
    usage: CallUsage | None = None
    is_final: bool = False
    was_refused: bool = False
    tier: str | None = None
    model: str | None = None


class Charge(Struct, frozen=True):
    """What a call is charged with. *cost* is what is known of it; the estimate may be more."""

    microusd: int
    tokens: int
    is_estimate: bool
    cost: Cost


class Meter:
    """Follow one answer with the HTTP status *status*.

    *model* is the one that the call is priced as, `provider:id`. With *swallows*, the chunk that
    tells usage alone is left out. Answers in one piece (not *is_stream*) are JSON.
    """

    def __init__(
        self,
        api: Api,
        model: str,
        *,
        status: int = 200,
        is_stream: bool = True,
        swallows: bool = False,
        max_event_bytes: int = MOST_BYTES,
    ) -> None:
        self._reader = reader_of(api, model)
        self._status = status
        self._events = EventReader(max_event_bytes) if is_stream else None
        self._swallows = swallows and is_stream
        self._document = bytearray()
        self._is_too_long = False

    def feed(self, chunk: bytes) -> bytes:
        """Read *chunk* and return what is to be passed on now."""
        if self._events is None:
            self._keep(chunk)
            return chunk
        passed = self._read(self._events.feed(chunk))
        return passed if self._swallows else chunk

    def close(self, *, is_cut: bool = False) -> tuple[bytes, Told]:
        """Return what is still to be passed on, and what was told. *is_cut*: more was to come."""
        rest = b""
        if self._events is not None:
            rest = self._read(self._events.close())
        elif not self._is_too_long:
            self._reader.read(bytes(self._document))
            self._document.clear()
        return rest if self._swallows else b"", self._told(is_cut)

    def _keep(self, chunk: bytes) -> None:
        if len(self._document) + len(chunk) > MOST_DOCUMENT:
            self._is_too_long = True
            self._document.clear()
        elif not self._is_too_long:
            self._document += chunk

    def _read(self, events: list[Event]) -> bytes:
        passed: list[bytes] = []
        for event in events:
            is_usage = event.data is not None and self._reader.read(event.data)
            if not (is_usage and self._swallows):
                passed.append(event.raw)
        return b"".join(passed) if self._swallows else b""

    def _told(self, is_cut: bool) -> Told:
        answer = self._reader.answer
        is_refusal = self._status >= 300
        status = self._outcome(is_cut, is_refusal)
        was_free = _is_free(self._status) and answer.usage is None
        is_final = answer.is_final and answer.usage is not None
        return Told(status, answer.usage, is_final, was_free, answer.tier, answer.model)

    def _outcome(self, is_cut: bool, is_refusal: bool) -> Status:
        answer = self._reader.answer
        if is_refusal or answer.has_failed:
            return "error"
        if is_cut or (self._events is not None and not answer.has_ended):
            return "cut"
        return "ok" if answer.usage is not None else "no-usage"


def tokens_of(played: Recorded) -> int:
    """Return the tokens that a recorded answer tells of."""
    meter = Meter(
        played.api,
        played.model,
        status=played.status,
        is_stream=_STREAM in dict(played.headers).get("content-type", ""),
    )
    meter.feed(played.body)
    usage = meter.close()[1].usage
    return 0 if usage is None else usage.tokens or 0


def report_of(usage: CallUsage, call_id: str) -> Usage:
    """Return *usage* as a ledger is told it. *call_id* is the gateway's own."""
    return Usage(
        usage.model,
        usage.input_tokens,
        usage.output_tokens,
        usage.cache_read_tokens,
        usage.cache_write_tokens,
        usage.cache_write_1h_tokens,
        usage.reasoning_tokens,
        call_id=call_id,
    )


def with_lifetimes(told: Told, caches_for: Lifetime) -> Told:
    """Return *told* with what the call asked for: nothing is cached longer than *caches_for*.

    Some answers do not tell apart for how long they wrote to the cache.
    """
    usage = told.usage
    if usage is None or not usage.hides_hour or caches_for == "hour":
        return told
    return replace(told, usage=replace(usage, cache_write_1h_tokens=0))


def charge_of(told: Told, price: Price | None, reserved: Worst) -> Charge:
    """Return what a call is charged with that told so much and was *reserved* for so."""
    if told.was_refused:
        return Charge(0, 0, is_estimate=False, cost=FREE)
    usage = told.usage
    cost = UNKNOWN if usage is None else cost_of_call(price, usage)
    tokens = 0 if usage is None else usage.tokens or 0
    is_priced = not cost.incomplete and told.tier in _USUAL_TIERS
    if told.is_final and is_priced:
        return Charge(cost.charged_microusd, tokens, is_estimate=False, cost=cost)
    microusd = max(reserved.microusd, cost.charged_microusd)
    known = tokens if told.is_final else max(reserved.tokens, tokens)
    least = cost if told.is_final else Cost(cost.least_microusd)
    return Charge(microusd, known, is_estimate=True, cost=least)


def _is_free(status: int) -> bool:
    """Whether a provider that answers with *status* charges nothing."""
    # What redirects called no model, and nobody follows it.
    return (
        status in _REFUSED
        or 300 <= status < 400
        or (400 <= status < 500 and status not in _MAYBE_SERVED)
    )
