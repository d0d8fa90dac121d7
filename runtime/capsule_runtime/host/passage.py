"""The connections of one listener of a run, each with the verdict that it ends in."""

from __future__ import annotations

import resource
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from socket import socket
from typing import NamedTuple

import anyio

from capsule_runtime.core.destinations import Destination
from capsule_runtime.core.egress import Budgets
from capsule_runtime.core.verdicts import Ending, Refusal, Verdict, Why
from capsule_runtime.host.forwarding import Tally
from capsule_runtime.host.sockets import accept

_PLACES_AT_LEAST = 16
_PLACES_AT_MOST = 4096
_RETRY_SECONDS = 0.1

Tell = Callable[[Verdict], None]
"""Take a verdict; called as a connection ends, also when everything is being cancelled."""


class Limits(NamedTuple):
    """How much one door gives, and the places that it shares with the doors of all other runs."""

    budgets: Budgets
    of_all: anyio.Semaphore


class Refused(Exception):
    """Raised where a connection goes no further."""

    def __init__(self, why: Why, message: str) -> None:
        super().__init__(message)
        self.refusal = Refusal(why, message)


@dataclass(slots=True)
class Passage:
    """One connection of a run, from the moment it is let in."""

    client: socket
    began: float
    target: Destination | None = None
    address: str | None = None
    reason: Why | Ending | None = None
    message: str = ""
    tally: Tally = field(default_factory=Tally)
    open: ExitStack = field(default_factory=ExitStack)
    """What is closed at its end."""

    def refuse(self, refusal: Refusal) -> None:
        """Keep why it goes no further."""
        self.reason, self.message = refusal.why, refusal.message

    def verdict(self, now: float) -> Verdict | None:
        """Return what became of it; None if it never asked for anything."""
        reason = self.reason or (Ending.CANCELLED if self.target else None)
        if reason is None:
            return None
        return Verdict(
            reason,
            self.target,
            self.address,
            self.message,
            self.tally.sent,
            self.tally.received,
            round((now - self.began) * 1000),
        )


def places_of_all() -> anyio.Semaphore:
    """Return the places that all runs of one supervisor share.

    Each takes two descriptors, and the supervisor needs half of all it may have for itself.
    """
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return anyio.Semaphore(max(_PLACES_AT_LEAST, min(most // 4, _PLACES_AT_MOST)))


async def serve(
    listener: socket, limits: Limits, attend: Callable[[Passage], Awaitable[None]], tell: Tell
) -> None:
    """Let *attend* see to each connection of *listener*, until cancelled; then all are cut.

    A few are let in at once. The others wait before the door, where they cost nothing: the listener
    is one run's, so a run that holds all its connections keeps only itself waiting. The listener
    stays open; it is its owner's.

    Raises:
        OSError: the listener is broken.
    """
    listener.setblocking(False)
    budgets, of_all = limits
    places = anyio.Semaphore(budgets.connections)

    async def see_to(client: socket) -> None:
        passage = Passage(client, anyio.current_time())
        passage.open.enter_context(client)
        try:
            with passage.open:
                await attend(passage)
        finally:
            of_all.release()
            if (verdict := passage.verdict(anyio.current_time())) is not None:
                tell(verdict)
        # Who asks in vain, again and again, must not keep the supervisor from other runs.
        if verdict is None or not verdict.is_allowed:
            await anyio.sleep(budgets.refusal_seconds)
        places.release()

    async with anyio.create_task_group() as tasks:
        while True:
            await places.acquire()
            # Only then a place of all: who waits for nobody in particular must not hold one.
            await anyio.wait_readable(listener)
            await of_all.acquire()
            if (client := accept(listener)) is not None:
                tasks.start_soon(see_to, client)
            else:
                of_all.release()
                places.release()
                await anyio.sleep(_RETRY_SECONDS)
