"""The work directory of one attempt: made ready before the launch, looked at after the burial."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.to_thread
import msgspec

from capsule_runtime.core.facts import Created, Fact
from capsule_runtime.core.outcome import Reason
from capsule_runtime.core.units import parse_size
from capsule_runtime.core.work import WorkChanges
from capsule_runtime.core.work_facts import Collected, Copied
from capsule_runtime.errors import CapsuleError
from capsule_runtime.host.capsule import Places
from capsule_runtime.host.filling import Stopped, TooLarge
from capsule_runtime.host.handing import Handing, take_back
from capsule_runtime.host.showing import remove_copies
from capsule_runtime.host.state import run_folder
from capsule_runtime.host.workroom import Workroom
from capsule_runtime.manifest import Manifest

T = TypeVar("T")

Make = Callable[[int, str, str], Fact]
_FAILURES = (Stopped, TooLarge, CapsuleError, OSError, msgspec.DecodeError)


class Working:
    """What an attempt does about its work directory."""

    def __init__(
        self,
        workroom: Workroom,
        handing: Handing,
        record: Callable[[Make], Awaitable[None]],
        note: Callable[[str], Awaitable[None]],
    ) -> None:
        self._workroom = workroom
        self._handing: Handing | None = handing
        self._record = record
        self._note = note
        self._stop: threading.Event | None = threading.Event()
        self._is_needed = False

    def stop(self) -> None:
        """Break off the copying, if it is still going on."""
        if self._stop is not None:
            self._stop.set()

    async def prepare(self, ask_stop: Callable[[Reason, str], Awaitable[None]]) -> None:
        """Copy the work directory, if the run gets a copy, and note what is in it.

        Raises:
            HostError: it cannot be copied.
        """
        stop = self._stop
        assert stop is not None, "it is made ready once"
        try:
            made = await in_thread(self._workroom.prepare, stop)
        except Stopped:
            return  # whoever stopped it is on record, and there will be no launch
        except TooLarge as exc:
            words = f"the work directory {self._workroom.original} is too large to be copied: {exc}"
            await ask_stop(Reason.DISK, words)
            return
        finally:
            self._stop = None
        if made is not None:
            await self._record(lambda seq, at, run: Copied(seq, at, run, made))

    async def collect(self, *, is_buried: bool) -> None:
        """Look at what was changed, and keep it if it was in a copy; nothing may live there.

        What the run's user had is ours again.
        """
        if is_buried:
            await self.take_back()
        self._handing = None
        if self._workroom.mode == "ro":
            return
        self._is_needed = True
        if not is_buried:
            why = "nothing proves its tree to be empty"
            await self._note(f"what it changed was not looked at: {why}; {self._stays}")
            return
        try:
            changes = await in_thread(self._workroom.collect, threading.Event())
        except _FAILURES as exc:
            await self._note(f"what it changed could not be collected: {exc}; {self._stays}")
            return
        is_copy = self._workroom.mode == "copy"
        self._is_needed = is_copy and changes is not None and changes.is_cut
        if changes is not None and changes != WorkChanges():
            await self._record(lambda seq, at, run: Collected(seq, at, run, changes))
        await self.put_away()

    @property
    def _stays(self) -> str:
        return f"it is in {self._workroom.place}"

    async def put_away(self) -> None:
        """Have the copy be nobody's before the end is on record: whoever comes next may remove it."""
        await self.take_back()
        if not self._is_needed:
            await anyio.to_thread.run_sync(self._workroom.put_away)

    async def discard(self) -> None:
        """Remove the copy, unless there is more in it than could be collected."""
        if not self._is_needed and self._workroom.mode == "copy":
            await anyio.to_thread.run_sync(self._workroom.discard)

    async def take_back(self) -> None:
        """Have what the run's user had be ours again; nothing of the run may live."""
        handing, self._handing = self._handing, None
        if handing is None or handing.user is None:
            return
        await anyio.to_thread.run_sync(remove_copies, self._workroom.folder)
        if why := await anyio.to_thread.run_sync(why_not_taken_back, handing.folders):
            await self._note(why)


def why_not_taken_back(folders: Iterable[Path]) -> str:
    """Have *folders* be ours again, whoever of a run's users has them; say why not, if so."""
    try:
        take_back(folders)
    except OSError as exc:
        return f"what the run made still belongs to the user that it had: {exc}"
    return ""


def workroom_for(places: Places, state: Path, manifest: Manifest, owner: int | None) -> Workroom:
    """Return the work directory of a new run; a copy is *owner*'s while the run works."""
    return Workroom(
        places.workdir_mode,
        places.original,
        places.run,
        state,
        parse_size(manifest.workdir.copies_at_most),
        None if owner is None else (owner, owner),
    )


def workroom_of(created: Created, state: Path) -> Workroom:
    """Return the work directory of the run that was *created*; an old log tells of none to look at."""
    return Workroom(
        created.workdir_mode or "ro",
        Path(created.workdir),
        run_folder(state, created.run),
        state,
        parse_size(created.manifest.workdir.copies_at_most),
    )


async def left_behind(workroom: Workroom) -> WorkChanges | str | None:
    """Return what a run of a dead owner changed, or why that is not known; nothing of it lives.

    Its copy is removed, unless there is more in it than could be collected.
    """
    await anyio.to_thread.run_sync(remove_copies, workroom.folder)
    try:
        changes = await in_thread(workroom.collect, threading.Event())
    except _FAILURES as exc:
        return f"what it changed could not be collected: {exc}"
    if changes is None or not changes.is_cut:
        await anyio.to_thread.run_sync(workroom.discard)
    return changes


async def in_thread(work: Callable[[Callable[[], bool]], T], stop: threading.Event) -> T:
    """Do *work* in a thread; to cancel this sets *stop*, and waits until *work* has heeded it.

    Raises:
        Exception: what *work* raised.
    """
    results: list[T] = []
    failures: list[Exception] = []

    def act() -> None:
        try:
            results.append(work(stop.is_set))
        except _FAILURES as exc:
            failures.append(exc)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_set_when_cancelled, stop)
        await anyio.to_thread.run_sync(act)
        tasks.cancel_scope.cancel()
    for failure in failures:
        raise failure
    return results[0]


async def _set_when_cancelled(stop: threading.Event) -> None:
    try:
        await anyio.sleep_forever()
    finally:
        stop.set()
