"""Start runs in tests with few words."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from capsule_runtime import Message, TextPart
from capsule_runtime.active_run import ActiveRun
from capsule_runtime.host.store import open_store
from capsule_runtime.request import RunRequest
from capsule_runtime.supervisor import Supervisor
from support.harness import agent_capsule
from support.logs import Log, assert_well_ended, finished
from support.processes import processes_of
from support.stores import frames

CHILD = Path(__file__).with_name("supervisor_child.py")


def request_for(capsule: Path, task: str = "do it", **wishes: Any) -> RunRequest:
    """Return a request to run *capsule* on the folder it lies in, without walls."""
    message = Message("m1", (TextPart(task),))
    usual: dict[str, Any] = {"workdir": capsule.parent, "containment": "advisory"}
    return RunRequest(capsule, message, **(usual | wishes))


async def ended(run: ActiveRun) -> Log:
    """Wait for the end of *run*, check what every end must be, and return the log."""
    log = await finished(run)
    assert_well_ended(log)
    assert processes_of(run.id) == []
    return log


async def heard(run: ActiveRun, words: str) -> None:
    """Wait until the log of *run* holds *words*."""
    async for row in run.follow():
        if words.encode() in row.body:
            return
    raise AssertionError(f"{run.id} ended without {words!r}")


@asynccontextmanager
async def undisturbed_neighbour(supervisor: Supervisor, folder: Path) -> AsyncGenerator[None]:
    """Have another run go on meanwhile, and check at the end that it noticed nothing."""
    gate = folder / "gate"
    os.mkfifo(gate)
    capsule = agent_capsule(folder / "neighbour", "waits", str(gate))
    neighbour = await supervisor.start(request_for(capsule))
    await heard(neighbour, "here")
    yield
    assert processes_of(neighbour.id) != []
    with opened(gate) as writer:
        os.write(writer, b"x")
        log = await ended(neighbour)
    assert (log.final.response, log.streamed) == ("undisturbed", "here")


@contextmanager
def opened(gate: Path) -> Generator[int]:
    """Hold the FIFO *gate* open for writing, whether anybody reads it or not."""
    writer = os.open(gate, os.O_RDWR | os.O_CLOEXEC)
    try:
        yield writer
    finally:
        os.close(writer)


async def intrude(state: Path, run: str) -> None:
    """Write one entry into the log of *run*, which somebody else owns."""
    async with open_store(state) as store:
        tail = await store.claim(run)
        await store.commit(tail, [frames(tail.next)])
