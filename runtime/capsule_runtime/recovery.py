"""End the runs whose owner died: their one final status is written by whoever finds them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import anyio.to_thread
import msgspec
from msgspec import Struct

from capsule_runtime.core.actions import Action
from capsule_runtime.core.facts import Created, Recovered
from capsule_runtime.core.gateway.reservations import Account, Limit
from capsule_runtime.core.journal import Append, Moment
from capsule_runtime.core.ledger import Ledger
from capsule_runtime.core.log import Record
from capsule_runtime.core.outcome import Reason
from capsule_runtime.core.run import Run
from capsule_runtime.core.work import WorkChanges
from capsule_runtime.core.work_facts import Collected
from capsule_runtime.errors import StoreError
from capsule_runtime.host.clock import Clock
from capsule_runtime.host.feed import whole_log
from capsule_runtime.host.locks import is_free, take, try_take
from capsule_runtime.host.run_log import RunLog
from capsule_runtime.host.state import (
    doorbell,
    places_of,
    private_folders,
    warden_door,
    warden_key,
    warden_lock,
)
from capsule_runtime.host.store import Store
from capsule_runtime.host.store_errors import DAMAGED, FENCE_LOST
from capsule_runtime.host.workroom import empty_trash, has_trash
from capsule_runtime.logs import Logs
from capsule_runtime.pricing import PriceBook
from capsule_runtime.working import left_behind, why_not_taken_back, workroom_of

BURIAL_SECONDS = 15.0
"""How long a dead owner's warden may take to bury what it had started."""


class Heir(Struct, frozen=True):
    """Who takes the place of dead owners: *id*, and what it works with."""

    store: Store
    clock: Clock
    id: str
    prices: PriceBook
    logs: Logs


async def recover(heir: Heir) -> list[str]:
    """End every run that a dead supervisor left, once its tree is buried; return their ids.

    A run whose tree is still being buried is left for the next one who looks.
    """
    _remove_remains(heir.store)
    ended: list[str] = []
    for owner in {row.owner for row in heir.store.live_runs_of_dead_owners()}:
        if owner is not None:
            ended += await _recover_from(heir, owner)
    if has_trash(heir.store.state):
        await anyio.to_thread.run_sync(empty_trash, heir.store.state)
    return ended


def _remove_remains(store: Store) -> None:
    """Remove the files of dead supervisors that left no run behind."""
    for path in (store.state / "supervisors").glob("*.lock"):
        owner = path.stem
        if store.live_runs_of(owner) or not is_free(warden_lock(store.state, owner)):
            continue
        if (lock := try_take(path)) is not None:
            with lock:  # its release removes it
                for remains in (doorbell, warden_door, warden_key, warden_lock):
                    remains(store.state, owner).unlink(missing_ok=True)
                store.audience(owner).unlink(missing_ok=True)


async def _recover_from(heir: Heir, owner: str) -> list[str]:
    """Take the dead owner's place: its own lock first, then its warden's."""
    store = heir.store
    own_lock = await take(store.owner_lock(owner), 0)
    if own_lock is None:
        return []  # it lives after all, or somebody else recovers from it
    with own_lock:
        buried = await take(warden_lock(store.state, owner), BURIAL_SECONDS)
        if buried is None:
            return []
        with buried:
            doorbell(store.state, owner).unlink(missing_ok=True)
            store.audience(owner).unlink(missing_ok=True)
            left = [row.id for row in store.live_runs_of(owner)]
            return [run for run in left if await _end(heir, run)]


async def _end(heir: Heir, run: str) -> bool:
    """Write the end of *run*, unless somebody else did, or its log cannot be read.

    One damaged log must not keep others from theirs; `check` shows it.
    """
    try:
        await _write_end(heir, run)
    except StoreError as exc:
        heir.logs.trouble(exc, run=run)
        if exc.code not in (FENCE_LOST, DAMAGED):
            raise
        return False
    except msgspec.DecodeError:
        return False
    return True


async def _write_end(heir: Heir, run: str) -> None:
    """Write the end of *run*. A reason that is on record already stays the reason."""
    store = heir.store
    tail = await store.claim(run)
    try:
        record = Record.fold(row.body for row in whole_log(partial(store.read, run)))
        context = record.created.context if record.created else ""
        log = RunLog(store, tail, record, observe=heir.logs.of(run=run, context=context).observe)
        state = Run(run, context, record.progress, await _account_of(record, heir.prices))
        moment = heir.clock.moment()
        actions: list[Action] = [
            *state.record(lambda seq, at, id: Recovered(seq, at, id, heir.id), moment),
            *(await _look_at_work(record, state, store.state, moment)),
            *state.fail(Reason.LOST, "the supervisor died while the run was going on", moment),
        ]
        log.put([action for action in actions if isinstance(action, Append)])
        await log.settled()
    finally:
        store.release(tail)


async def _look_at_work(
    record: Record, state: Run, folder: Path, moment: Moment
) -> Sequence[Action]:
    """Return what there is to write of what the run changed in its work directory."""
    if record.created is None:
        return ()
    folders = _folders_of(record.created, folder)
    why = await anyio.to_thread.run_sync(why_not_taken_back, folders)
    noted = state.note(why, moment) if why else ()
    found = await left_behind(workroom_of(record.created, folder))
    if isinstance(found, str):
        return (*noted, *state.note(found, moment))
    if found is None or found == WorkChanges() or record.changes is not None:
        return noted
    collected = state.record(lambda seq, at, run: Collected(seq, at, run, found), moment)
    return (*noted, *collected)


def _folders_of(created: Created, state: Path) -> tuple[Path, ...]:
    """Return what the user of the run had while it worked, if root could show it nothing else."""
    mode = created.workdir_mode or "ro"
    return private_folders(
        places_of(state, created.run, created.context_uuid, Path(created.workdir), mode)
    )


async def _account_of(record: Record, prices: PriceBook) -> Ledger:
    """Return the account of the run as its log has it, in dollars if it was bounded in dollars."""
    attempt = record.attempt
    bounds = (attempt.ceilings, attempt.day) if attempt else ()
    in_dollars = any(bound and bound.microusd is not None for bound in bounds)
    table = await prices.table() if in_dollars and record.usage.calls else None
    return Ledger(prices=table, usage=record.usage, account=_calls_of(record))


def _calls_of(record: Record) -> Account | None:
    """Return the account of the calls that passed the gateway, if the run's account is that."""
    if record.attempt is None or record.attempt.ledger != "gateway":
        return None
    calls = record.calls
    return Account(
        "the run",
        Limit(),
        settled=calls.settled,
        estimated=calls.estimated,
        unsettled=calls.unsettled,
    )
