"""The gateway of one run, before it is served: whom it leads to, with whose keys, on what account."""

from __future__ import annotations

import secrets
import socket
from typing import NamedTuple

import anyio.to_thread

from capsule_runtime.core.ceilings import Ceilings
from capsule_runtime.core.day_share import Share
from capsule_runtime.core.doors import GATEWAY_PORT
from capsule_runtime.core.gateway.cassette import Cassette, Miss
from capsule_runtime.core.gateway.reservations import Account, Limit
from capsule_runtime.core.prices import PriceTable
from capsule_runtime.core.providers import Provider, told
from capsule_runtime.core.relaying import Credential
from capsule_runtime.errors import HostError, UsageError
from capsule_runtime.host.gateway.recording import Recorder, read_cassette
from capsule_runtime.host.keys import resolve_key
from capsule_runtime.request import Ready

_MARKER_BYTES = 16
_LOOPBACK = "127.0.0.1"


class Served(NamedTuple):
    """One provider, and its key for this run."""

    provider: Provider
    credential: Credential | None


class Player(NamedTuple):
    """A cassette, and what becomes of a call that is not in it."""

    cassette: Cassette
    on_miss: Miss


class GatewayPlan:
    """What the gateway of one run is made with. It holds keys: it is neither shown nor kept."""

    def __init__(
        self,
        served: tuple[Served, ...],
        ceilings: Ceilings,
        prices: PriceTable | None,
        *,
        is_only_way: bool,
        needs_marker: bool,
        port: int = GATEWAY_PORT,
    ) -> None:
        """*is_only_way*: the run's account is of what passes here, and nothing else.

        *needs_marker*: a caller has to show the marker; else the listener tells that it is the run.
        """
        self.needs_marker = needs_marker
        self.served = {one.provider.name: one for one in served}
        self.ceilings = ceilings
        self.prices = prices
        self.is_only_way = is_only_way
        self.marker = f"capsule-{secrets.token_hex(_MARKER_BYTES)}"
        """What the harness has for a key: it opens this gateway, and nothing else."""
        self.of_day = Account("the day's ceiling", Limit())
        self.account = Account(
            "the run's ceiling", Limit(ceilings.microusd, ceilings.tokens), self.of_day
        )
        self.day = ""
        """The one of which the run holds a share."""
        self.recorder: Recorder | None = None
        """Where calls are recorded, if they are."""
        self.player: Player | None = None
        """What answers instead of the providers, if something does."""
        self.listener: socket.socket | None = None
        """Where the run is called at that has no walls on the network."""
        self.port = port

    def hold(self, share: Share) -> None:
        """Take *share*, which is what the run may have used of the day."""
        self.day = share.day
        self.of_day.set_limit(Limit(share.microusd, share.tokens))

    def listen(self) -> None:
        """Listen on loopback, for a run that has no doors.

        Raises:
            HostError: E-HOST-034, the system refuses.
        """
        try:
            self.listener = socket.create_server((_LOOPBACK, 0))
        except OSError as exc:
            what = f"the gateway of the run cannot be served: {exc}"
            raise HostError("E-HOST-034", what) from exc
        self.port = self.listener.getsockname()[1]

    @property
    def own_account(self) -> Account | None:
        """Return the account, if it is that of the whole run."""
        return self.account if self.is_only_way else None

    @property
    def environment(self) -> dict[str, str]:
        """Return the variables by which the harness is told."""
        return told((one.provider for one in self.served.values()), self.port, self.marker)

    def close(self) -> None:
        """Listen no more. A second call does nothing."""
        if self.listener is not None:
            self.listener.close()
        if self.recorder is not None:
            self.recorder.close()


async def gateway_for(ready: Ready, prices: PriceTable | None) -> GatewayPlan | None:
    """Return the gateway that the run of *ready* gets; None where no provider was granted.

    Raises:
        UsageError: a key cannot be had; a cassette cannot be written or played.
        HostError: nobody can listen.
    """
    if not ready.providers:
        return None
    request = ready.request
    player = None
    if request.playback is not None:
        cassette = await anyio.to_thread.run_sync(read_cassette, request.playback)
        player = Player(cassette, request.on_miss)
    # What is played needs no key: nobody is called.
    keys = [None if player else await resolve_key(it) for it in ready.providers]
    served = tuple(map(Served, ready.providers, keys))
    plan = GatewayPlan(
        served,
        ready.terms.ceilings,
        prices,
        is_only_way=ready.terms.ledger == "gateway",
        needs_marker=ready.shell.tier != "sealed",
        port=ready.shell.gateway_port,
    )
    plan.player = player
    if ready.shell.tier == "advisory":
        plan.listen()
    try:
        plan.recorder = None if request.record is None else Recorder(request.record)
    except UsageError:
        plan.close()
        raise
    return plan
