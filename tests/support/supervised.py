"""Start runs in tests with few words."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from capsule_runtime import Message, TextPart
from capsule_runtime.request import RunRequest
from capsule_runtime.supervisor import ActiveRun, Supervisor
from support.harness import AGENT, python_command, write_capsule
from support.logs import Log, assert_well_ended, finished
from support.processes import processes_of


def request_for(capsule: Path, task: str = "do it", **wishes: Any) -> RunRequest:
    """Return a request to run *capsule* beside its own folder, without walls."""
    message = Message("m1", (TextPart(task),))
    return RunRequest(capsule, message, capsule.parent, containment="advisory", **wishes)


async def ended(run: ActiveRun) -> Log:
    """Wait for the end of *run*, check what every end must be, and return the log."""
    log = await finished(run)
    assert_well_ended(log)
    assert processes_of(run.id) == []
    return log


@asynccontextmanager
async def undisturbed_neighbour(supervisor: Supervisor, folder: Path) -> AsyncGenerator[None]:
    """Have another run go on meanwhile, and check at the end that it noticed nothing."""
    gate = folder / "gate"
    os.mkfifo(gate)
    command = python_command(str(AGENT), "waits", str(gate))
    capsule = write_capsule(folder / "neighbour", command)
    neighbour = await supervisor.start(request_for(capsule))
    async for row in neighbour.follow():
        if b'"text":"here"' in row.body:
            break
    yield
    assert processes_of(neighbour.id) != []
    opened = os.open(gate, os.O_RDWR)
    os.write(opened, b"x")
    log = await ended(neighbour)
    os.close(opened)
    assert (log.final.response, log.streamed) == ("undisturbed", "here")
