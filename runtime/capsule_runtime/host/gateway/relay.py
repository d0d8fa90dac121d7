"""One call that was admitted: its answer, piece by piece, and the meter that watches it.

At most one piece is held: who does not read is not read from either.
"""

from __future__ import annotations

import anyio

from capsule_runtime.core.http_passing import headers_downstream
from capsule_runtime.core.masking import Mask
from capsule_runtime.core.relaying import Ending, Fault, RequestHead
from capsule_runtime.host.gateway.bounds import Bounds
from capsule_runtime.host.gateway.contract import Admitted, Meter
from capsule_runtime.host.gateway.exchange import Exchange
from capsule_runtime.host.gateway.patience import Patience
from capsule_runtime.host.gateway.upstreams import Reply, Unserved, Upstreams

_NOT_BEGUN = Fault(504, "first-byte-timeout", "the provider did not begin to answer")
_SILENT = Fault(504, "silent", "the provider has become silent")


async def relay(
    upstreams: Upstreams, exchange: Exchange, head: RequestHead, call: Admitted, bounds: Bounds
) -> None:
    """Carry *call* to its upstream and the answer back; its meter has ended when this returns.

    The client hears of the end of its answer only once the meter has.

    Raises:
        Unserved: the upstream did not do its part; the client may have heard some of the answer.
        Gone: the client did not take it.
    """
    ending, patience = Ending.CUT, Patience(bounds.total_seconds)
    try:
        with patience.scope:
            await _carry(upstreams, exchange, head, call, patience)
            ending = Ending.COMPLETE
    except Unserved as unserved:
        if unserved.is_unsent:
            ending = Ending.UNSENT
        raise
    finally:
        await _end(call.meter, ending, bounds.end_seconds)
    if ending is Ending.CUT and patience.fault:
        raise Unserved(patience.fault)
    await exchange.finish()


async def _carry(
    upstreams: Upstreams,
    exchange: Exchange,
    head: RequestHead,
    call: Admitted,
    patience: Patience,
) -> None:
    secret = call.forward.credential.secret if call.forward.credential else b""
    patience.wait(exchange.bounds.first_byte_seconds, _NOT_BEGUN)
    async with upstreams.asked(call.forward, head) as reply:
        call.meter.head(reply.status, reply.headers)
        await exchange.begin(reply.status, headers_downstream(reply.headers, secret))
        await _pass_on(reply, exchange, call.meter, Mask(secret), patience)


async def _pass_on(
    reply: Reply, exchange: Exchange, meter: Meter, mask: Mask, patience: Patience
) -> None:
    silent_seconds = exchange.bounds.silent_seconds
    patience.wait(silent_seconds, _SILENT)
    async for piece in reply.pieces:
        if seen := mask.feed(piece):
            await exchange.pass_on(meter.chunk(seen))
        patience.wait(silent_seconds, _SILENT)
    if rest := mask.end():
        await exchange.pass_on(meter.chunk(rest))
    await exchange.pass_on(meter.chunk(b""))


async def _end(meter: Meter, ending: Ending, seconds: float) -> None:
    with anyio.CancelScope(shield=True), anyio.move_on_after(seconds):
        await meter.end(ending)
