"""The ways out of a sealed run: ports of its own loopback, at which the supervisor serves it."""

from __future__ import annotations

from msgspec import Struct

from capsule_runtime.core.destinations import parse_upstream
from capsule_runtime.core.proxy_env import proxy_environment
from capsule_runtime.core.verdicts import Door

PROXY_PORT = 3128
"""Where proxies usually listen; the next port where the upstream has this one."""


GATEWAY_PORT = 3130
"""Where a run finds the gateway; the next port where the upstream has this one."""


class DoorPlan(Struct, frozen=True):
    """What a run may reach."""

    hosts: tuple[str, ...] = ()
    """As they were granted."""
    upstream: str | None = None
    """The one place that its own port leads to, as HOST:PORT."""
    gateway: bool = False
    """Whether it may call models through the gateway."""

    @property
    def ports(self) -> dict[Door, int]:
        """Return at which port of its loopback the run finds each door.

        Raises:
            UsageError: E-USE-052, the upstream is no place.
        """
        ports: dict[Door, int] = {}
        if self.upstream is not None:
            # The same port as outside: an address on this machine stays what it was.
            ports["upstream"] = parse_upstream(self.upstream).port
        if self.hosts:
            ports["proxy"] = PROXY_PORT + (PROXY_PORT in ports.values())
        if self.gateway:
            ports["gateway"] = GATEWAY_PORT + (GATEWAY_PORT in ports.values())
        return ports

    @property
    def environment(self) -> dict[str, str]:
        """Return the variables that lead programs to the proxy, if there is one."""
        ports = self.ports
        return proxy_environment(ports["proxy"]) if "proxy" in ports else {}


NO_DOORS = DoorPlan()
"""A run that reaches nothing."""
