"""`capsule run --detach`: leave the run to a process of its own.

The process forks before it has any thread, loop or database. The child goes on as if nothing had
happened, in a session of its own; the parent waits until the run is recorded, prints its id and
leaves. What goes wrong before that is reported by the child in the usual way, and passed on.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec

from capsule_runtime.active_run import ActiveRun
from capsule_runtime.cli.failures import INTERRUPTED, write_stderr
from capsule_runtime.cli.lines import PlainRenderer, paragraph
from capsule_runtime.cli.output import STDERR, STDOUT, write_bytes
from capsule_runtime.cli.running import Caller, Wishes, run_unseen
from capsule_runtime.errors import HostError
from capsule_runtime.request import RunRequest

_STDIN = 0


def leave_running(request: RunRequest, wishes: Wishes) -> int:
    """Start *request* in a process of its own; return the status to exit with.

    In that process this does not return before the run has ended.

    Raises:
        CapsuleError: there is no run.
    """
    # The child must not hold our stdout or stderr: whoever reads them would wait for its end.
    reader, writer = os.pipe()
    complaints = os.memfd_create("complaints")
    if child := os.fork():
        os.close(writer)
        return _recorded(child, reader, complaints, wishes)
    os.close(reader)
    _become_background(complaints)
    return run_unseen(request, wishes, Caller(writer, partial(_report, writer)))


def _become_background(complaints: int) -> None:
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for fd, target in ((null, _STDIN), (null, STDOUT), (complaints, STDERR)):
        os.dup2(fd, target)
    os.close(null)
    os.close(complaints)


def _report(writer: int, run: ActiveRun, folder: Path) -> None:
    """Tell the parent that *run* is recorded; from here on complaints go to a file of the run."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    fd = os.open(
        folder / "supervisor.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600
    )
    # What was said before the run had a folder was kept for the parent, which needs it no more.
    os.write(fd, os.pread(STDERR, os.fstat(STDERR).st_size, 0))
    os.dup2(fd, STDERR)
    os.close(fd)
    # A parent that died meanwhile does not get to know; the run goes on all the same.
    with suppress(BrokenPipeError), open(writer, "wb") as pipe:
        pipe.write(msgspec.json.encode((run.id, *run.notes)) + b"\n")


def _recorded(child: int, reader: int, complaints: int, wishes: Wishes) -> int:
    """Wait for what *child* has to report, and pass it on."""
    try:
        with open(reader, "rb") as pipe:
            told = pipe.readline()
    except KeyboardInterrupt:
        os.kill(child, signal.SIGTERM)
        os.waitpid(child, 0)
        return INTERRUPTED
    if told:
        run, *notes = msgspec.json.decode(told, type=tuple[str, ...])
        renderer = wishes.rows or PlainRenderer()
        for note in notes:
            write_stderr(renderer.whole([paragraph(f"warning: {note}")]))
        write_bytes(run.encode() + b"\n")
        return 0
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.lseek(complaints, 0, os.SEEK_SET)
    with os.fdopen(complaints, "rb") as complained:
        write_stderr(complained.read().decode("utf-8", "replace"))
    if status < 0:
        raise HostError(
            "E-HOST-020", f"the process that was to own the run was ended by signal {-status}"
        )
    return status
