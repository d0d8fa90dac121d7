"""Bytes both ways between a run and a place, as long as there is something left of its budgets."""

from __future__ import annotations

from dataclasses import dataclass
from socket import socket

import anyio

from capsule_runtime.core.egress import Budgets
from capsule_runtime.core.verdicts import Ending
from capsule_runtime.host.sockets import CHUNK_BYTES, end_sending, receive, reset_on_close, send_all


@dataclass(slots=True)
class Tally:
    """How many bytes went to the place and came from it."""

    sent: int = 0
    received: int = 0


class Allowance:
    """What all connections through one door may carry together."""

    def __init__(self, budgets: Budgets) -> None:
        self._budgets = budgets
        self._carried = Tally()

    @property
    def is_spent(self) -> bool:
        """Tell whether nothing more can be sent, or nothing more received."""
        carried, budgets = self._carried, self._budgets
        return carried.sent >= budgets.sent_bytes or carried.received >= budgets.received_bytes

    def take(self, tally: Tally, *, sent: int = 0, received: int = 0) -> bool:
        """Enter bytes of a connection, unless they are too many; tell whether they were entered."""
        carried, budgets = self._carried, self._budgets
        if carried.sent + sent > budgets.sent_bytes:
            return False
        if carried.received + received > budgets.received_bytes:
            return False
        for one in (carried, tally):
            one.sent += sent
            one.received += received
        return True


class Forwarding:
    """One connection: what *client* says goes to *server*, and the other way round.

    At most one piece of each direction is held: who does not read is not read from either. An end
    in one direction is passed on, and the other goes on. Any other end cuts both connections, so
    that nobody takes a part for the whole.
    """

    def __init__(
        self, client: socket, server: socket, budgets: Budgets, allowance: Allowance, tally: Tally
    ) -> None:
        self._client = client
        self._server = server
        self._budgets = budgets
        self._idle_seconds = budgets.idle_seconds
        self._allowance = allowance
        self._tally = tally
        self._scope = anyio.CancelScope()
        self._last = 0.0
        self._ending: Ending | None = None
        self._idle_ending = Ending.IDLE

    async def run(self, first: bytes = b"", left: int | None = None) -> Ending:
        """Forward to the end, and return which one it was. *first* goes to the server before all.

        With *left*, so many bytes follow it and no more, and the end of the server is the end.
        """
        self._last = anyio.current_time() + self._budgets.connection_seconds
        self._touch()
        try:
            with self._scope:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._guarded_send, first, left)
                    tasks.start_soon(self._guarded_receive, left is not None)
            return self._how_it_ended()
        finally:
            if self._ending is not Ending.CLOSED:
                reset_on_close(self._client, self._server)

    def _how_it_ended(self) -> Ending:
        if self._ending is None and self._scope.cancelled_caught:
            is_over = anyio.current_time() >= self._last
            self._ending = Ending.TIME if is_over else self._idle_ending
        self._ending = self._ending or Ending.CLOSED
        return self._ending

    async def _guarded_send(self, first: bytes, left: int | None) -> None:
        try:
            if await self._passed_on(first):
                await self._send(left)
        except OSError:
            self._end(Ending.RESET)

    async def _guarded_receive(self, is_all: bool) -> None:
        try:
            await self._receive()
        except OSError:
            self._end(Ending.RESET)
        else:
            if is_all:
                self._end(Ending.CLOSED)

    async def _send(self, left: int | None) -> None:
        while left is None or left > 0:
            most = CHUNK_BYTES if left is None else min(left, CHUNK_BYTES)
            data = await receive(self._client, most)
            if not data:
                return end_sending(self._server)
            left = None if left is None else left - len(data)
            if not await self._passed_on(data):
                return None
        return None

    async def _passed_on(self, data: bytes) -> bool:
        if not self._allowance.take(self._tally, sent=len(data)):
            self._end(Ending.BYTES)
            return False
        await send_all(self._server, data)
        self._touch()
        return True

    async def _receive(self) -> None:
        while data := await receive(self._server):
            if not self._allowance.take(self._tally, received=len(data)):
                return self._end(Ending.BYTES)
            await send_all(self._client, data)
            self._touch()
        end_sending(self._client)
        # Clients keep what a server has closed, until they need it again: that is no cut.
        self._idle_ending = Ending.CLOSED
        self._idle_seconds = min(self._idle_seconds, self._budgets.half_open_seconds)
        self._touch()

    def _touch(self) -> None:
        """Give the connection its idle time anew, and never more than its time."""
        self._scope.deadline = min(anyio.current_time() + self._idle_seconds, self._last)

    def _end(self, ending: Ending) -> None:
        self._ending = self._ending or ending
        self._scope.cancel()
