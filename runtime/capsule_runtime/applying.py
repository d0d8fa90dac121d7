"""What a run changed in its copy, offered to the caller, and applied to the original."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio
from msgspec.structs import replace

from capsule_runtime.core.journal import Append, Journal
from capsule_runtime.core.log import Record
from capsule_runtime.core.work import show_path
from capsule_runtime.core.work_facts import Applied
from capsule_runtime.errors import HostError, UsageError
from capsule_runtime.host.apply_changes import Numbered, Target
from capsule_runtime.host.apply_target import opened_target
from capsule_runtime.host.clock import SystemClock
from capsule_runtime.host.feed import whole_log
from capsule_runtime.host.kept_changes import Changes, Kept
from capsule_runtime.host.run_log import RunLog
from capsule_runtime.host.staging import NAMED, MovedOn
from capsule_runtime.host.state import default_state, run_folder
from capsule_runtime.host.store import Store, open_store
from capsule_runtime.offering import Offer, Wants, offer_of, select


@dataclass(frozen=True, slots=True)
class Applying:
    """The changes of one run, ready to be applied."""

    state: Path
    record: Record
    changes: Changes
    selected: Numbered
    offer: Offer


async def find_changes(run: str, wants: Wants, state: Path | None = None) -> Applying:
    """Return what *run*, a whole id, changed in its copy, and what of it is to be applied.

    Raises:
        UsageError: E-USE-070, it goes on, or worked in no copy, or nothing was collected;
            E-USE-071, it was applied.
        HostError: E-HOST-041, what was kept of it is damaged.
    """
    state = state or default_state()
    async with open_store(state, readonly=True) as store:
        record = _record_of(store, run)
    _check(record, run)
    kept = Kept(run_folder(state, run))
    changes = kept.load()
    if changes is None:
        raise UsageError(
            "E-USE-070",
            f"nothing that {run} changed was collected",
            f"`capsule logs --facts {run}` says why.",
        )
    selected, left_out = select(changes, wants)
    return Applying(
        state, record, changes, selected, offer_of(record, kept, changes, selected, left_out)
    )


def apply(applying: Applying) -> Offer:
    """Apply the selected changes to the original, all or none, and put that on record.

    For the main thread, where no event loop runs: an interrupt undoes what was done so far.

    Raises:
        UsageError: E-USE-071, it was applied by now; E-USE-072, the original has changed;
            E-USE-073, it is gone.
        HostError: E-HOST-042, the disk refuses and nothing was done; E-HOST-043, not all could be
            undone.
        StoreError: it cannot be put on record; nothing was done.
    """
    changes, run = applying.changes, applying.offer.run
    kept, everything = Kept(run_folder(applying.state, run)), list(enumerate(changes.changes))
    stage = f".capsule-apply-{run[-12:]}"
    folder = os.fsdecode(changes.original)
    with opened_target(folder, changes.device, changes.inode, stage) as target:
        _begin(target, applying, everything)
        try:
            with kept.blobs.open("rb") as blobs:
                target.apply(applying.selected, blobs)
        except MovedOn as exc:
            raise _moved_on(folder, exc.paths) from exc
        except OSError as exc:
            raise HostError("E-HOST-041", f"{kept.blobs} cannot be read: {exc}") from exc
        try:
            with _uninterrupted():
                at = anyio.run(_put_on_record, applying)
        except BaseException:
            target.undo(applying.selected)
            raise
        target.finish()
    return replace(applying.offer, applied_at=at)


def _begin(target: Target, applying: Applying, everything: Numbered) -> None:
    """Clear what an earlier attempt left, and check that all is still as it was copied."""
    try:
        anyio.run(find_changes, applying.offer.run, Wants(), applying.state)
    except UsageError as exc:
        if exc.code == "E-USE-071" and target.is_staged:
            target.finish()
        raise
    if target.is_staged:
        target.undo(everything)
    if differing := target.differing(applying.selected):
        raise _moved_on(os.fsdecode(applying.changes.original), differing)


def _record_of(store: Store, run: str) -> Record:
    return Record.fold(row.body for row in whole_log(partial(store.read, run)))


def _check(record: Record, run: str) -> None:
    """Refuse a run whose changes cannot be applied."""
    if record.ended is None:
        raise UsageError("E-USE-070", f"{run} has not ended", f"Wait for it: capsule wait {run}")
    if record.created is None or record.created.workdir_mode != "copy":
        raise UsageError(
            "E-USE-070",
            f"{run} worked in no copy, so there is nothing to apply",
            "`capsule run --workdir-mode copy` has a run work on a copy.",
        )
    if record.applied is not None:
        raise UsageError(
            "E-USE-071",
            f"what {run} changed was applied already, at {record.applied.at}",
            "Nothing was done now. Undo it with what you keep versions with, if you want to.",
        )


def _moved_on(folder: str, paths: Sequence[str]) -> UsageError:
    named = "".join(f"\n  {show_path(os.fsencode(path))}" for path in paths[:NAMED])
    more = f"\n  and {len(paths) - NAMED} more" if len(paths) > NAMED else ""
    return UsageError(
        "E-USE-072",
        f"nothing was applied: in {folder} these have changed since they were copied:{named}{more}",
        "Put them back as they were, or take what you want from the patch: capsule apply --diff RUN",
    )


async def _put_on_record(applying: Applying) -> str:
    """Write that the changes were applied; return when.

    Raises:
        StoreError: it cannot be written, or somebody else wrote first.
    """
    run = applying.offer.run
    async with open_store(applying.state) as store:
        tail = await store.claim(run)
        record = _record_of(store, run)
        journal = Journal(run, record.position)
        journal.at = at = SystemClock().moment().at
        tally, left_out = applying.offer.tally, len(applying.offer.left_out)
        journal.fact(lambda seq, at, run: Applied(seq, at, run, tally, left_out))
        appends: list[Append] = journal.take()
        log = RunLog(store, tail, record)
        log.put(appends)
        await log.settled()
        store.release(tail)
    return at


@contextmanager
def _uninterrupted() -> Generator[None]:
    """Have an interrupt wait until the block is left."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
