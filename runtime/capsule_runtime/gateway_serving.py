"""Serve the gateway of one run: its listener, wherever that was made, leads to its gatekeeper."""

from __future__ import annotations

from collections.abc import Iterator
from socket import socket

from capsule_runtime.call_book import AskStop, CallBook
from capsule_runtime.core.run import Run
from capsule_runtime.deciding import Decider
from capsule_runtime.gatekeeping import Gatekeeper, ReserveOfDay
from capsule_runtime.gateway_plan import GatewayPlan
from capsule_runtime.host.gateway import Gateway, serve_gateway
from capsule_runtime.host.shared import Host

_NAMES = ("127.0.0.1", "localhost")


class OpenGateway:
    """The gateway of a run that has begun."""

    def __init__(
        self,
        plan: GatewayPlan,
        host: Host,
        run: Run,
        decider: Decider,
        ask_stop: AskStop,
        reserve: ReserveOfDay | None,
    ) -> None:
        """*reserve* gets the run more of the day, where the day has ceilings."""
        self.listener = plan.listener
        book = CallBook(run, decider, ask_stop)
        policy = Gatekeeper(plan, book, host.clock, host.outside.upstreams, reserve)
        names = _authorities(plan.port)
        self._gateway = Gateway(policy, host.outside.upstreams, names, host.outside.places)

    async def serve(self, listener: socket) -> None:
        """Serve the calls that come to *listener*, until cancelled; then all are cut.

        Raises:
            OSError: the listener is broken.
            StoreError: the log cannot be written.
        """
        await serve_gateway(listener, self._gateway)


def _authorities(port: int) -> Iterator[str]:
    for name in _NAMES:
        yield f"{name}:{port}"
