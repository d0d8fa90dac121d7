"""Serve the doors of one run, and have what it tried to reach stand in its log."""

from __future__ import annotations

from functools import partial
from socket import socket
from typing import assert_never

import anyio

from capsule_runtime.core.destinations import parse_upstream
from capsule_runtime.core.doors import DoorPlan
from capsule_runtime.core.egress import Budgets, EgressRules
from capsule_runtime.core.run import Run
from capsule_runtime.core.verdicts import Door
from capsule_runtime.deciding import Decider
from capsule_runtime.egress_log import EgressLog
from capsule_runtime.host.egress_proxy import serve_proxy
from capsule_runtime.host.passage import Limits
from capsule_runtime.host.shared import Host
from capsule_runtime.host.upstream import serve_upstream


class Doorkeeper:
    """The supervisor's side of a run's doors, which it closes."""

    def __init__(
        self, host: Host, run: Run, decider: Decider, plan: DoorPlan, doors: tuple[socket, ...]
    ) -> None:
        self._host = host
        self._plan = plan
        self._doors = doors
        self._log = EgressLog(run, decider)

    def close(self) -> None:
        """Close every door. A second call does nothing."""
        for door in self._doors:
            door.close()

    async def serve(self) -> None:
        """Serve every door until cancelled.

        Raises:
            StoreError: the log cannot be written.
        """
        if not self._doors:
            return
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._log.write)
            for door, listener in zip(self._plan.ports, self._doors, strict=True):
                tasks.start_soon(self._serve, door, listener)

    async def finish(self) -> None:
        """Write what is left to be written, once nobody serves any more.

        Raises:
            StoreError: the log cannot be written.
        """
        await self._log.finish()

    async def _serve(self, door: Door, listener: socket) -> None:
        tell = partial(self._log.tell, door)
        limits = Limits(Budgets(), self._host.places)
        match door:
            case "proxy":
                rules = EgressRules.of(self._plan.hosts)
                await serve_proxy(listener, rules, self._host.network, tell, limits)
            case "upstream":
                upstream = parse_upstream(self._plan.upstream or "")
                await serve_upstream(listener, upstream, self._host.network, tell, limits)
            case other:
                assert_never(other)
