"""Look a place up and dial it, each in bounded time."""

from __future__ import annotations

from collections.abc import Sequence
from socket import socket

import anyio

from capsule_runtime.core.destinations import Destination
from capsule_runtime.core.verdicts import Why
from capsule_runtime.host.network import Network
from capsule_runtime.host.passage import Passage, Refused

_TRIES = 3


async def addresses_of(network: Network, target: Destination, seconds: float) -> Sequence[str]:
    """Return where *target* is: looked up once, unless it is an address.

    Raises:
        Refused: nobody says where it is, within *seconds*.
    """
    if target.is_literal:
        return (target.host,)
    try:
        with anyio.fail_after(seconds):
            return await network.resolve(target.host)
    except TimeoutError as exc:
        raise Refused(Why.TIMEOUT, f"nobody said in time where {target.host} is") from exc
    except OSError as exc:
        raise Refused(Why.UNRESOLVED, f"{target.host} cannot be found") from exc


async def dial_one(
    network: Network, passage: Passage, addresses: Sequence[str], port: int, seconds: float
) -> socket:
    """Return a connection to the first of *addresses* that answers; *passage* closes it at its end.

    Raises:
        Refused: none of the first few does within *seconds*.
    """
    tried = addresses[:_TRIES]
    refused = Refused(Why.UNREACHABLE, "it has no address")
    for address in tried:
        passage.address = address
        try:
            with anyio.fail_after(seconds / len(tried)):
                server = await network.dial(address, port)
        except TimeoutError:
            refused = Refused(Why.TIMEOUT, f"nobody answers at {address}, port {port}, in time")
        except OSError as exc:
            why = exc.strerror or "it cannot be reached"
            refused = Refused(Why.UNREACHABLE, f"{address}, port {port}: {why}")
        else:
            passage.open.enter_context(server)
            return server
    raise refused
