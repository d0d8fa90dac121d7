"""What one run costs the memory of its supervisor, measured in a process of its own.

measure.py STATE CAPSULE: carries the run out and says what it took.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import anyio
import msgspec

sys.path.insert(0, str(Path(__file__).parents[1]))

from capsule_runtime.supervisor import Supervisor, open_supervisor
from support.harness import agent_capsule
from support.supervised import request_for

_NOTED = b'{"fact":"noted"'


class Measured(msgspec.Struct):
    """What one run came to, and by how much the supervisor's memory grew at most."""

    run: str
    outcome: str
    last_seq: int
    notes: list[str]
    peak_growth_bytes: int


async def measured(state: Path, capsule: Path) -> Measured:
    """Carry out a run of *capsule* in another process."""
    done = await anyio.run_process(
        [sys.executable, __file__, str(state), str(capsule)], stderr=None
    )
    return msgspec.json.decode(done.stdout, type=Measured)


async def main(state: Path, capsule: Path) -> Measured:
    async with open_supervisor(state) as supervisor:
        # The first run of a process pays for what is loaded then.
        await _carry_out(supervisor, agent_capsule(capsule.parent / "first", "talks_on"))
        before = _reset_peak_bytes()
        told = await _carry_out(supervisor, capsule)
        told.peak_growth_bytes = _peak_bytes() - before
    return told


async def _carry_out(supervisor: Supervisor, capsule: Path) -> Measured:
    """Run *capsule* beside a follower that looks once and never again."""
    run = await supervisor.start(request_for(capsule))
    stuck = run.follow()
    await anext(stuck)
    last_seq, notes = 0, list[str]()
    async for row in run.follow():
        last_seq = row.last
        if _NOTED in row.body:
            lines = row.body.splitlines()
            notes += [line.decode() for line in lines if line.startswith(_NOTED)]
    record = await run.wait()
    return Measured(run.id, record.outcome.value, last_seq, notes, 0)


def _reset_peak_bytes() -> int:
    Path("/proc/self/clear_refs").write_text("5")
    return _peak_bytes()


def _peak_bytes() -> int:
    found = re.search(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


if __name__ == "__main__":
    told = anyio.run(main, Path(sys.argv[1]), Path(sys.argv[2]))
    sys.stdout.buffer.write(msgspec.json.encode(told))
