"""The gateway, its bytes: HTTP in at a run's own listener, HTTP out to where its policy says."""

from __future__ import annotations

from capsule_runtime.host.gateway.bounds import Bounds
from capsule_runtime.host.gateway.contract import Admitted, Meter, Policy
from capsule_runtime.host.gateway.serving import Gateway, serve_gateway
from capsule_runtime.host.gateway.upstreams import Upstreams, open_upstreams

__all__ = [
    "Admitted",
    "Bounds",
    "Gateway",
    "Meter",
    "Policy",
    "Upstreams",
    "open_upstreams",
    "serve_gateway",
]
