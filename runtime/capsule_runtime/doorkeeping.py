"""Serve what one run handed out, and have what it tried to reach stand in its log.

A sealed run hands out listeners of its own network. A scoped one hands out the descriptor at which
the kernel tells of its calls: a broker connects it to listeners of ours, which nobody else reaches.
"""

from __future__ import annotations

import errno
import os
from contextlib import ExitStack
from functools import partial
from socket import socket
from typing import TYPE_CHECKING

import anyio

from capsule_runtime.core.destinations import Destination, parse_upstream
from capsule_runtime.core.doors import DoorPlan
from capsule_runtime.core.egress import Budgets, EgressRules
from capsule_runtime.core.mediation import Endpoint
from capsule_runtime.core.run import Run
from capsule_runtime.core.sandbox_plan import WallPlan
from capsule_runtime.core.scope import Scope
from capsule_runtime.core.verdicts import Door, Why
from capsule_runtime.core.verdicts import Verdict as Reached
from capsule_runtime.deciding import Decider
from capsule_runtime.egress_log import EgressLog
from capsule_runtime.errors import HostError
from capsule_runtime.host.broker import Broker, Granted, Verdict
from capsule_runtime.host.egress_proxy import serve_proxy
from capsule_runtime.host.mediated_sockets import Dial
from capsule_runtime.host.metadata import Identity
from capsule_runtime.host.own_listener import OwnListener
from capsule_runtime.host.passage import Limits
from capsule_runtime.host.shared import Host
from capsule_runtime.host.upstream import serve_upstream

if TYPE_CHECKING:
    from capsule_runtime.call_book import AskStop
    from capsule_runtime.gatekeeping import ReserveOfDay
    from capsule_runtime.gateway_plan import GatewayPlan
    from capsule_runtime.gateway_serving import OpenGateway

_LOOPBACK = "127.0.0.1"


class Doorkeeper:
    """The supervisor's side of a run's doors."""

    def __init__(
        self,
        host: Host,
        run: Run,
        decider: Decider,
        walls: WallPlan,
        handed: tuple[int, ...],
        gateway: OpenGateway | None,
    ) -> None:
        """Take *handed*, which is closed with this, and *gateway*, if the run has one.

        Raises:
            OSError: a place that the broker is to reach is not there.
        """
        self._host = host
        self._gateway = gateway
        self._log = EgressLog(run, decider)
        self._open = ExitStack()
        self._listeners: dict[Door, socket] = {}
        self._broker: Broker | None = None
        self._plan = DoorPlan()
        with ExitStack() as cleanup_on_fail:
            cleanup_on_fail.callback(self._open.close)
            if walls.seal is not None:
                self._plan = walls.seal.doors
                for door, descriptor in zip(self._plan.ports, handed, strict=True):
                    self._listen(door, socket(fileno=descriptor))
            elif walls.scope is not None:
                self._plan = walls.scope.doors
                self._mediate(walls.scope, *handed)
            if gateway is not None and gateway.listener is not None:
                self._listen("gateway", gateway.listener)
            cleanup_on_fail.pop_all()

    def close(self) -> None:
        """Close every door. A second call does nothing."""
        self._open.close()

    async def serve(self) -> None:
        """Serve every door until cancelled.

        Raises:
            StoreError: the log cannot be written.
        """
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._log.write)
            if self._broker is not None:
                tasks.start_soon(self._broker.serve)
            for door, listener in self._listeners.items():
                tasks.start_soon(self._serve, door, listener)

    async def finish(self) -> None:
        """Write what is left to be written, once nobody serves any more.

        Raises:
            StoreError: the log cannot be written.
        """
        await self._log.finish()

    def _listen(self, door: Door, listener: socket) -> None:
        self._listeners[door] = self._open.enter_context(listener)

    def _mediate(self, scope: Scope, descriptor: int) -> None:
        endpoints: dict[Endpoint, Dial] = {}
        try:
            for door, port in self._plan.ports.items():
                own = OwnListener()
                self._listen(door, own)
                endpoints[Endpoint(_LOOPBACK, port)] = own.dial
        except OSError:
            os.close(descriptor)
            raise
        user = scope.user
        if user is not None and scope.owns:
            granted = Granted(endpoints, scope.roots, Identity(user, user))
        else:
            granted = Granted(endpoints, scope.roots, shown_as=user)
        self._broker = Broker(descriptor, granted, self._refused)
        self._open.callback(self._broker.close)

    def _refused(self, verdict: Verdict) -> None:
        """Take note of where the run went past its doors."""
        if verdict.error != 0:
            target = Destination(verdict.endpoint.address, verdict.endpoint.port)
            why = f"it is no door of the run: {errno.errorcode.get(verdict.error, verdict.error)}"
            self._log.tell("proxy", Reached(Why.HOST, target, None, why))

    async def _serve(self, door: Door, listener: socket) -> None:
        tell = partial(self._log.tell, door)
        limits = Limits(Budgets(), self._host.outside.places)
        if door == "proxy":
            rules = EgressRules.of(self._plan.hosts)
            await serve_proxy(listener, rules, self._host.outside.network, tell, limits)
        elif door == "gateway":
            assert self._gateway is not None, "there is no such door without it"
            await self._gateway.serve(listener)
        else:
            upstream = parse_upstream(self._plan.upstream or "")
            await serve_upstream(listener, upstream, self._host.outside.network, tell, limits)


def open_gateway(
    plan: GatewayPlan | None,
    host: Host,
    run: Run,
    decider: Decider,
    ask_stop: AskStop,
    reserve: ReserveOfDay | None,
) -> OpenGateway | None:
    """Return the gateway of a run as it can be served, if it has one.

    *reserve* gets the run more of the day, where the day has ceilings.
    """
    if plan is None:
        return None
    from capsule_runtime.gateway_serving import OpenGateway  # most runs have none

    return OpenGateway(plan, host, run, decider, ask_stop, reserve if plan.is_only_way else None)


def open_doors(
    host: Host,
    run: Run,
    decider: Decider,
    walls: WallPlan,
    handed: tuple[int, ...],
    gateway: OpenGateway | None,
) -> Doorkeeper:
    """Return who serves what the run *handed* out.

    Raises:
        HostError: E-HOST-034, it cannot be served.
    """
    try:
        return Doorkeeper(host, run, decider, walls, handed, gateway)
    except OSError as exc:
        raise HostError("E-HOST-034", f"the doors of the run cannot be served: {exc}") from exc
