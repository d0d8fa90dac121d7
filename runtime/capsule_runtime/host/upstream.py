"""The one place that a run's listener leads to, byte by byte: what `--upstream` names.

The caller named it for all of the run, so it may be on this machine, and nothing is judged.
"""

from __future__ import annotations

from socket import socket

from capsule_runtime.core.destinations import Destination
from capsule_runtime.core.egress import Budgets
from capsule_runtime.core.verdicts import Why
from capsule_runtime.host.dialling import addresses_of, dial_one
from capsule_runtime.host.forwarding import Allowance, Forwarding
from capsule_runtime.host.network import Network
from capsule_runtime.host.passage import Limits, Passage, Refused, Tell, serve
from capsule_runtime.host.sockets import reset_on_close


async def serve_upstream(
    listener: socket,
    upstream: Destination,
    network: Network,
    tell: Tell,
    limits: Limits,
) -> None:
    """Forward each connection on *listener*, which is one run's, to *upstream*, until cancelled.

    *tell* gets the verdict on each as it ends. One that finds nobody there is cut. The listener
    stays open.

    Raises:
        OSError: the listener is broken.
    """
    forwarder = _Forwarder(upstream, network, limits.budgets)
    await serve(listener, limits, forwarder.attend, tell)


class _Forwarder:
    """What the connections of one run share."""

    def __init__(self, upstream: Destination, network: Network, budgets: Budgets) -> None:
        self.budgets = budgets
        self._upstream = upstream
        self._network = network
        self._allowance = Allowance(budgets)

    async def attend(self, passage: Passage) -> None:
        """See to one connection, to its end."""
        passage.target = self._upstream
        try:
            server = await self._reached(passage)
        except Refused as refused:
            passage.refuse(refused.refusal)
            return reset_on_close(passage.client)
        forwarding = Forwarding(
            passage.client, server, self.budgets, self._allowance, passage.tally
        )
        passage.reason = await forwarding.run()

    async def _reached(self, passage: Passage) -> socket:
        if self._allowance.is_spent:
            raise Refused(Why.SPENT, "the run has sent or received as much as it may")
        upstream, budgets = self._upstream, self.budgets
        found = await addresses_of(self._network, upstream, budgets.resolve_seconds)
        return await dial_one(self._network, passage, found, upstream.port, budgets.dial_seconds)
