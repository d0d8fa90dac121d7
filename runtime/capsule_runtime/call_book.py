"""What is written of the calls of one run, and where what they cost is entered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

import anyio

from capsule_runtime.core.actions import Action
from capsule_runtime.core.call_facts import CallEnded, CallFact, CallStarted
from capsule_runtime.core.call_fold import REFUSALS_KEPT
from capsule_runtime.core.ceilings import Ceiling
from capsule_runtime.core.gateway.cassette import Recorded
from capsule_runtime.core.gateway.reservations import NOTHING, Account, Amount, Reservation
from capsule_runtime.core.gateway.settling import tokens_of
from capsule_runtime.core.journal import Moment
from capsule_runtime.core.outcome import Reason
from capsule_runtime.core.purse import REASON_OF
from capsule_runtime.core.run import Run
from capsule_runtime.core.states import State
from capsule_runtime.deciding import Decider
from capsule_runtime.host.clock import new_id

Make = Callable[[int, str, str], CallFact]
"""Build a fact from seq, at and run."""
AskStop = Callable[[Reason, str], Awaitable[None]]


class CallBook:
    """Write the facts of calls in the order in which they are decided."""

    def __init__(self, run: Run, decider: Decider, ask_stop: AskStop) -> None:
        self._run = run
        self._decider = decider
        self._ask_stop = ask_stop
        self._refused = 0

    async def write(self, make: Make) -> None:
        """Write a fact; return once it is on disk. Whoever is cancelled meanwhile has written it.

        Raises:
            StoreError: the log cannot be written.
        """
        with anyio.CancelScope(shield=True):
            await self._decider.decide(lambda moment: self._written(make, moment))

    async def note(self, text: str) -> None:
        """Write a note of the run.

        Raises:
            StoreError: the log cannot be written.
        """
        with anyio.CancelScope(shield=True):
            await self._decider.decide(lambda moment: self._run.note(text, moment))

    async def refuse(self, make: Make, message: str, ceiling: Ceiling | None) -> None:
        """Write that a call was refused; at a *ceiling*, the run is asked to stop as well.

        Raises:
            StoreError: the log cannot be written.
        """
        self._refused += 1
        if self._refused <= REFUSALS_KEPT:
            await self.write(make)
        if ceiling is not None:
            await self._ask_stop(REASON_OF[ceiling], message)

    async def write_played(
        self, provider: str, model: str, played: Recorded, account: Account
    ) -> None:
        """Write a call that a cassette answered: it counts its tokens, and costs nothing.

        Raises:
            StoreError: the log cannot be written.
        """
        call, tokens = new_id("call"), tokens_of(played)
        held = account.reserve(NOTHING)
        if isinstance(held, Reservation):
            held.settle(Amount(0, tokens))
        started = partial(
            CallStarted, call=call, provider=provider, model=model, api=played.api.value
        )
        await self.write(started)
        ended = partial(
            CallEnded, call=call, status="played", http_status=played.status, tokens=tokens
        )
        await self.write(ended)

    def _written(self, make: Make, moment: Moment) -> list[Action]:
        if self._run.state is State.ENDED:
            return []  # nothing follows the final status
        made: list[CallFact] = []

        def kept(seq: int, at: str, run: str) -> CallFact:
            made.append(make(seq, at, run))
            return made[0]

        actions = self._run.record(kept, moment)
        ended, ledger = made[0], self._run.ledger
        if isinstance(ended, CallEnded) and ended.usage is not None and ledger.account is not None:
            ledger.used(ended.usage)
        return actions
