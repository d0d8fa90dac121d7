"""All that is known of one run in one JSON object: `--result`, `show --json`, `wait --json`."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from capsule_runtime.cli.call_view import Calls, calls_of
from capsule_runtime.cli.options import to_absolute
from capsule_runtime.cli.output import STDERR, STDOUT
from capsule_runtime.cli.shown_cost import ShownCost, shown_cost
from capsule_runtime.cli.warnings import patch_of
from capsule_runtime.core.ceilings import Ceilings, DayCeilings
from capsule_runtime.core.containment import Containment
from capsule_runtime.core.egress_facts import EgressSummary
from capsule_runtime.core.grants import Grants
from capsule_runtime.core.ledger import Spend
from capsule_runtime.core.log import Record
from capsule_runtime.core.outcome import Outcome, Reason, exit_code
from capsule_runtime.core.prices import PriceTable
from capsule_runtime.core.steers import Steer
from capsule_runtime.core.work import WorkChanges, WorkdirMode
from capsule_runtime.errors import CapsuleError, UsageError
from capsule_runtime.leavings import OutFile, list_out_files


class Result(Struct, frozen=True):
    """One run. While it goes on, what only its end can tell is null."""

    run: str
    capsule: str
    version: str
    driver: str
    context: str
    workdir: str
    workdir_mode: WorkdirMode | None
    why_copy: str
    changes: WorkChanges | None
    """What the run changed in the work directory, as far as that is looked at; null before its end."""
    patch: str | None
    applied_at: str | None
    state: str
    outcome: Outcome | None
    reason: Reason | None
    exit_code: int | None
    message: str
    """What the final status says."""
    response: str | None
    """The answer, if the run completed."""
    session: str | None
    model: str | None
    steers: tuple[Steer, ...]
    """Words that were handed to the working harness, and whether it took them."""
    containment: str | None
    grants: Grants | None
    """What the harness got beyond the capsule's folder and the work directory."""
    walls: Containment | None
    """What the harness is behind, and what it is not."""
    turns: int
    tool_calls: int
    permissions_allowed: int
    permissions_denied: int
    """How often the harness asked whether it may use a tool, and what it was told."""
    egress: EgressSummary | None
    """What it reached in the network, and what it was refused; null if it tried nothing."""
    tokens: int | None
    steps: int
    """How many calls of a model were heard of."""
    cost: ShownCost | None
    """Null when none was."""
    harness_microusd: int | None
    """What the harness itself says that it cost; null when it says nothing. No ceiling counts it."""
    harness_is_partial: bool
    """Whether that is the least: of some calls it said nothing."""
    calls: Calls | None
    """Those that passed the gateway; null where there is none, or nothing was called."""
    ledger: str | None
    """Where the account comes from."""
    spend: Spend | None
    """When what a call used is known."""
    ceilings: Ceilings | None
    day: DayCeilings | None
    created_at: str
    ended_at: str | None
    out_folder: str
    out: tuple[OutFile, ...]
    """The regular files in it, by name: at most 10 000."""
    out_is_cut: bool
    """Whether there may be more in it: too many, too deep, or a folder that cannot be read."""


class Refusal(Struct, frozen=True):
    """What stands there instead when no run was begun."""

    code: str
    """Of the error, as `capsule explain` explains it."""
    message: str
    hint: str
    exit_code: int
    run: None = None
    outcome: Outcome = Outcome.REFUSED
    reason: None = None
    response: None = None


def result_of(record: Record, out_folder: Path, prices: PriceTable | None) -> Result:
    """Return the result of the run that *record* was folded from, its calls at *prices*."""
    created, attempt, ended, final = record.created, record.attempt, record.ended, record.final
    assert created is not None  # it is the first entry of every log
    model = record.session.model if record.session else None
    left = list_out_files(out_folder)
    return Result(
        run=created.run,
        capsule=created.manifest.name,
        version=created.manifest.version,
        driver=created.manifest.harness.driver,
        context=created.context,
        workdir=created.workdir,
        workdir_mode=created.workdir_mode,
        why_copy=created.why_copy,
        changes=record.changes,
        patch=patch_of(record, out_folder),
        applied_at=record.applied.at if record.applied else None,
        state=record.state,
        outcome=ended.outcome if ended else None,
        reason=ended.reason if ended else None,
        exit_code=exit_status_of_run(record) if ended else None,
        message=final.message if final else "",
        response=final.response if final else None,
        session=record.session.id if record.session else None,
        model=model or (attempt.model if attempt else None),
        steers=tuple(record.steers.values()),
        containment=attempt.containment if attempt else None,
        grants=attempt.grants if attempt else None,
        walls=record.containment,
        turns=record.turns,
        tool_calls=record.tool_calls,
        permissions_allowed=record.allowed,
        permissions_denied=record.denied,
        egress=record.egress.summary,
        tokens=record.tokens,
        steps=len(record.usage.calls),
        cost=shown_cost(record.usage.calls, prices) if prices else None,
        harness_microusd=record.told_dollars.sum.microusd,
        harness_is_partial=record.told_dollars.sum.is_partial,
        calls=calls_of(record),
        ledger=attempt.ledger if attempt else None,
        spend=attempt.spend if attempt else None,
        ceilings=attempt.ceilings if attempt else None,
        day=attempt.day if attempt else None,
        created_at=created.at,
        ended_at=ended.at if ended else None,
        out_folder=str(out_folder),
        out=left.files,
        out_is_cut=left.is_cut,
    )


def exit_status_of_run(record: Record) -> int:
    """Return what the process exits with when the run ended as *record* says."""
    assert record.ended is not None  # asked for only at the end
    return exit_code(record.ended.outcome, record.ended.reason)


def find_result_path(name: str) -> Path:
    """Return where a result for *name* goes, with no link on the way, before anything is started.

    Raises:
        UsageError: no result can be written there: there is something that is no regular file, or
            its folder takes no new one.
    """
    path = to_absolute(name)
    try:
        _check_is_free(path)
        place = Path(os.path.realpath(path))
        _check_is_free(place)
        draft = _draft_beside(place)
        draft.touch(exist_ok=False)
        draft.unlink()
    except OSError as exc:
        raise UsageError(
            "E-USE-028",
            f"no result can be written to {path}: {exc.strerror}",
            "Name a file in a folder of yours.",
        ) from exc
    return place


def write_result(path: Path, result: Result) -> None:
    """Write *result* to *path*: the whole of it, or nothing.

    Raises:
        UsageError: the disk refuses, or *path* has become something else than a regular file.
    """
    try:
        _write(path, result)
    except OSError as exc:
        raise UsageError(
            "E-USE-028",
            f"no result can be written to {path}: {exc.strerror}",
            f"The run has ended; read it with: capsule show --json {result.run}",
        ) from exc


@contextmanager
def refusals_kept(path: Path | None) -> Generator[None]:
    """Leave it at *path* if an error in the block keeps a run from beginning."""
    try:
        yield
    except CapsuleError as error:
        if path is not None:
            with suppress(OSError):  # why there is no run matters more, and is told
                _write(path, _refusal(error))
        raise


def _refusal(error: CapsuleError) -> Refusal:
    # Names of files in a message may be no text.
    message, hint = (
        text.encode("utf-8", "backslashreplace").decode() for text in (error.message, error.hint)
    )
    return Refusal(error.code, message, hint, error.exit_status)


def _write(path: Path, value: Struct) -> None:
    draft = _draft_beside(path)
    try:
        _check_is_free(path, follows_links=False)
        with draft.open("xb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")
        draft.replace(path)
    except OSError:
        _discard(draft)
        raise


def _check_is_free(path: Path, *, follows_links: bool = True) -> None:
    """Refuse to take the place of a device, a pipe or a folder, or of a file we write to.

    Raises:
        OSError: *path* is one.
    """
    try:
        found = os.stat(path, follow_symlinks=follows_links)
    except FileNotFoundError:
        return
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file")
    if any(os.path.samestat(found, os.fstat(fd)) for fd in (STDOUT, STDERR)):
        raise OSError(errno.EINVAL, "stdout or stderr goes there")


def _draft_beside(path: Path) -> Path:
    # Not made from the name of *path*, which may be as long as a name can be.
    # Nor one to be foreseen, where a harness could lay a link.
    return path.with_name(f".capsule-result.{os.urandom(8).hex()}")


def _discard(draft: Path) -> None:
    with suppress(OSError):  # Its folder is out of reach; what made it so is being told already.
        draft.unlink(missing_ok=True)
