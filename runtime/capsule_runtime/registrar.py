"""Give a new run its place in the store: from its first entry on it exists."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import anyio.to_thread
from msgspec import Struct

from capsule_runtime.announcing import created_run
from capsule_runtime.core.ceilings import NO_DAY, DayCeilings
from capsule_runtime.core.day_share import Needs
from capsule_runtime.core.index import index_row
from capsule_runtime.core.journal import Append
from capsule_runtime.core.log import Record
from capsule_runtime.core.prices import PriceTable
from capsule_runtime.core.run import Run
from capsule_runtime.host.clock import new_id
from capsule_runtime.host.log_tail import LogTail
from capsule_runtime.host.rows import ContextRow
from capsule_runtime.host.run_log import RunLog, rows_of
from capsule_runtime.host.shared import Host
from capsule_runtime.host.store import Store
from capsule_runtime.logs import Logs
from capsule_runtime.pricing import PriceBook
from capsule_runtime.refusals import not_created
from capsule_runtime.request import (
    Draft,
    Ready,
    RunRequest,
    grant,
    read_request,
    with_version,
)

if TYPE_CHECKING:
    from capsule_runtime.gateway_plan import GatewayPlan


class Registrar(Struct, frozen=True):
    """Check requests, and write runs into the store in the name of supervisor *owner*."""

    store: Store
    host: Host
    owner: str
    prices: PriceBook
    logs: Logs

    async def check(self, request: RunRequest) -> tuple[Ready, PriceTable | None]:
        """Return *request* ready to be started, and the prices if it is bounded in dollars.

        Raises:
            CapsuleError: it cannot be started; nothing was written.
        """
        draft = read_request(request, self._day)
        ready = await self._granted(draft)
        needs_prices = draft.terms.needs_prices or ready.providers
        prices = await self.prices.table() if needs_prices else None
        ready.terms.check(ready.model, prices)
        return await self._with_version(ready), prices

    async def _with_version(self, ready: Ready) -> Ready:
        if not ready.capsule.described.version_args:
            return ready
        return await anyio.to_thread.run_sync(with_version, ready, self.store.state)

    def context_for(self, ready: Ready) -> ContextRow:
        """Return the context that *ready* names, or a new one."""
        name, driver = ready.request.context, ready.capsule.manifest.harness.driver
        known = self.store.context(name) if name else None
        if known is not None:
            return replace(known, driver=driver)  # the store refuses it if that is another
        return ContextRow(
            name=name or new_id("ctx"),
            uuid=new_id("ctx"),
            driver=driver,
            created_at=self.host.clock.moment().at,
        )

    async def gateway_for(self, ready: Ready, prices: PriceTable | None) -> GatewayPlan | None:
        """Return the gateway that the run of *ready* gets, if it gets one; its owner closes it.

        Raises:
            UsageError: a key cannot be had.
            HostError: nobody can listen.
        """
        if not ready.providers:
            return None
        from capsule_runtime.gateway_plan import gateway_for  # most runs have none

        return await gateway_for(ready, prices)

    async def create(
        self, state: Run, ready: Ready, context: ContextRow, gateway: GatewayPlan | None = None
    ) -> RunLog:
        """Write the run's first entry; its *gateway*, if it has the account, holds its share.

        Raises:
            UsageError: the context is busy, another driver's, or E-USE-014: made elsewhere.
            SpendError: nothing is left of the day.
            StoreError: it cannot be written.
        """
        created = partial(created_run, self.owner, ready, context)
        actions = state.record(created, self.host.clock.moment())
        appends = [action for action in actions if isinstance(action, Append)]
        record = Record()
        for append in appends:
            for entry in append.entries:
                record.apply_entry(entry)
        index = index_row(record)
        assert index is not None
        rows = rows_of(appends)
        claim = self.host.day.claim(index.id, Needs()) if self.host.day else None
        made = await self.store.create_run(index, rows, context, claim)
        if not isinstance(made, LogTail):
            raise not_created(made, context)
        if gateway is not None and gateway.own_account is not None and made.share is not None:
            gateway.hold(made.share)
        else:
            state.ledger.share = made.share
        observe = self.logs.of(run=index.id, context=context.name).observe
        log = RunLog(self.store, made, record, context, observe=observe)
        log.published(rows, appends)
        return log

    @property
    def _day(self) -> DayCeilings:
        return self.host.day.ceilings if self.host.day else NO_DAY

    async def _granted(self, draft: Draft) -> Ready:
        known = self.store.context(draft.request.context) if draft.request.context else None
        tier = known.tier if known else None
        # Its whole folder may be read, and this machine be looked at: not where runs are waited for.
        if draft.asks or draft.request.containment != "advisory":
            return await anyio.to_thread.run_sync(grant, draft, self.store.state, tier)
        return grant(draft, self.store.state, tier)
