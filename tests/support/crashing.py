"""Supervisors that are killed, many of them, at moments that are spread over a span.

crashing.py STATE CAPSULE TIER VICTIMS MARK SPAN_MS COUNT FOLDER: forks COUNT supervisors one after
another, each of which runs CAPSULE in TIER. Number N of them is killed N / COUNT of the span after it
has told MARK, with its warden where VICTIMS is `both`. What it told up to its death goes into FOLDER,
as a file that is called like its pid: `open`, its run's id, and the log as it was committed.

They are forked, not started anew: the interpreter's start would be most of the time.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import anyio

sys.path.insert(0, str(Path(__file__).parents[1]))

from capsule_runtime.host.sweep import children
from capsule_runtime.supervisor import open_supervisor
from support.supervised import request_for


async def live(state: Path, capsule: Path, tier: str, told: int) -> None:
    """Own a run and tell of it, until killed."""
    os.write(told, b"open\n")
    async with open_supervisor(state) as supervisor:
        run = await supervisor.start(request_for(capsule, containment=tier, workdir=capsule))
        os.write(told, run.id.encode() + b"\n")
        async for row in run.follow():
            os.write(told, row.body)


def become_supervisor(state: Path, capsule: Path, tier: str, told: int) -> NoReturn:
    try:
        anyio.run(live, state, capsule, tier, told)
    finally:
        os._exit(1)  # it should have been killed


def kill_after(pid: int, told: int, mark: bytes, delay: float, victims: str) -> bytes:
    """Kill *pid*, or it and its warden, a while after it has told *mark*; return all it told."""
    heard, deadline = b"", None
    while deadline is None or time.monotonic() < deadline:
        wait = None if deadline is None else max(0.0, deadline - time.monotonic())
        if select.select([told], [], [], wait)[0]:
            chunk = os.read(told, 65536)
            assert chunk, f"it ended before {mark!r}: {heard!r}"
            heard += chunk
        if deadline is None and mark in heard:
            deadline = time.monotonic() + delay
    wardens = children(pid) if victims == "both" else []
    for victim in (pid, *wardens):
        with suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)
    os.waitpid(pid, 0)
    while chunk := os.read(told, 65536):
        heard += chunk
    return heard


def main(
    state: Path, capsule: Path, terms: tuple[str, str, str], span: float, count: int, folder: Path
) -> None:
    tier, victims, mark = terms
    for number in range(count):
        reader, writer = os.pipe2(os.O_CLOEXEC)
        pid = os.fork()
        if pid == 0:
            os.close(reader)
            become_supervisor(state, capsule, tier, writer)
        os.close(writer)
        heard = kill_after(pid, reader, mark.encode(), span * number / count, victims)
        os.close(reader)
        (folder / str(pid)).write_bytes(heard)


if __name__ == "__main__":
    _, state_name, capsule_name, *three, span_ms, how_many, folder_name = sys.argv
    tier_name, victims_name, mark_name = three
    main(
        Path(state_name),
        Path(capsule_name),
        (tier_name, victims_name, mark_name),
        int(span_ms) / 1000,
        int(how_many),
        Path(folder_name),
    )
