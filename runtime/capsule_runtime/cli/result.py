"""All that is known of one run in one JSON object: `--result`, `show --json`, `wait --json`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from capsule_runtime.core.log import Record
from capsule_runtime.core.outcome import Outcome, Reason, exit_code
from capsule_runtime.errors import UsageError

_MOST_FILES = 10_000


class OutFile(Struct, frozen=True):
    """A file that the run left behind; *path* is relative to the run's out folder."""

    path: str
    size: int


class Result(Struct, frozen=True):
    """One run. While it goes on, what only its end can tell is null."""

    run: str
    capsule: str
    version: str
    driver: str
    context: str
    workdir: str
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
    containment: str | None
    turns: int
    tool_calls: int
    tokens: int | None
    created_at: str
    ended_at: str | None
    out_folder: str
    out: tuple[OutFile, ...]
    """At most 10 000 of them, by name."""


def result_of(record: Record, out_folder: Path) -> Result:
    """Return the result of the run that *record* was folded from."""
    created, attempt, ended, final = record.created, record.attempt, record.ended, record.final
    assert created is not None  # it is the first entry of every log
    model = record.session.model if record.session else None
    return Result(
        run=created.run,
        capsule=created.manifest.name,
        version=created.manifest.version,
        driver=created.manifest.harness.driver,
        context=created.context,
        workdir=created.workdir,
        state=record.state,
        outcome=ended.outcome if ended else None,
        reason=ended.reason if ended else None,
        exit_code=exit_status_of_run(record) if ended else None,
        message=final.message if final else "",
        response=final.response if final else None,
        session=record.session.id if record.session else None,
        model=model or (attempt.model if attempt else None),
        containment=attempt.containment if attempt else None,
        turns=record.turns,
        tool_calls=record.tool_calls,
        tokens=record.tokens,
        created_at=created.at,
        ended_at=ended.at if ended else None,
        out_folder=str(out_folder),
        out=tuple(sorted(_files_in(out_folder), key=lambda file: file.path)),
    )


def exit_status_of_run(record: Record) -> int:
    """Return what the process exits with when the run ended as *record* says."""
    assert record.ended is not None  # asked for only at the end
    return exit_code(record.ended.outcome, record.ended.reason)


def check_result_path(path: Path) -> None:
    """Refuse a place where no result can be written, before anything is started.

    Raises:
        UsageError: its folder is missing or may not be written to, or *path* is a folder.
    """
    folder = path.parent
    if path.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(
            "E-USE-028", f"no result can be written to {path}", "Name a file in a folder of yours."
        )


def write_result(path: Path, result: Result) -> None:
    """Write *result* to *path*: the whole of it, or nothing.

    Raises:
        UsageError: the disk refuses.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=2) + b"\n")
        draft.replace(path)
    except OSError as exc:
        draft.unlink(missing_ok=True)
        raise UsageError(
            "E-USE-028",
            f"no result can be written to {path}: {exc.strerror}",
            f"The run has ended; read it with: capsule show --json {result.run}",
        ) from exc


def _files_in(folder: Path) -> Iterator[OutFile]:
    count = 0
    for place, _, names in os.walk(folder):
        for name in names:
            if count == _MOST_FILES:
                return
            count += 1
            path = Path(place, name)
            shown = os.fsencode(path.relative_to(folder)).decode("utf-8", "replace")
            yield OutFile(shown, path.lstat().st_size)
