"""Probes of ceilings: to take more of the machine than was given. All of them are bounded."""

from __future__ import annotations

import os
import resource
import time

import anyio

from capsule_runtime.core.lines import LineBuffer
from capsule_runtime.host.machine import find_machine
from support.corpus.probe import probe
from support.corpus.rig import Rig
from support.corpus.tiers import SMALL

_MEBIBYTE = 1024**2


@probe(
    25,
    "start more processes than it may",
    is_ceiling=True,
    # Of a user who is not alone the kernel counts all; the supervisor looks at the tree, and ends it.
    stated={"scoped": () if find_machine().cgroups.processes else ("processes",)},
)
async def start_many(rig: Rig) -> list[str]:
    code = """
import signal
children = []
signal.alarm(30)
try:
    for _ in range(int(sys.argv[1])):
        children.append(os.fork())
        if not children[-1]:
            signal.alarm(30)
            signal.pause()
except OSError:
    pass
print(len(children), flush=True)
signal.pause()
"""
    limit = int(SMALL.processes)
    async with rig.started(code, 2 * limit) as launched:
        with anyio.fail_after(20):
            await anyio.wait_readable(launched.output)
        return ["processes"] if len(launched.processes()) > limit else []


@probe(25, "take more memory than it may", is_ceiling=True)
async def take_memory(rig: Rig) -> list[str]:
    code = """
taken = [bytearray(os.urandom(1 << 20)) for _ in range(int(sys.argv[1]))]
route("memory", lambda: "done")
"""
    if not find_machine().cgroups.memory and rig.is_walled:
        return []  # Polled by the supervisor: tests/escape/test_limits.py.
    said = await rig.tries(code, 2 * SMALL.memory // _MEBIBYTE)
    return ["memory"] if "done" in said else []


@probe(25, "write larger files than it may", is_ceiling=True)
async def write_large_files(rig: Rig) -> list[str]:
    code = """
import signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
def fill(path, size):
    with open(path, "wb", buffering=0) as file:
        for _ in range(size):
            file.write(bytes(1 << 20))
route("work directory", lambda: fill("large", int(sys.argv[1])))
"""
    await rig.tries(code, 2 * SMALL.disk // _MEBIBYTE)
    large = rig.workdir / "large"
    is_past = large.exists() and large.stat().st_size > SMALL.disk
    return ["work directory"] if is_past else []


@probe(25, "open more files than it may", is_ceiling=True)
async def open_many_files(rig: Rig) -> list[str]:
    code = """
import signal
opened = []
try:
    while len(opened) < 200:
        opened.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    pass
print(len(opened), flush=True)
signal.alarm(30)
signal.pause()
"""
    async with rig.started(code) as launched:
        with anyio.fail_after(20):
            await anyio.wait_readable(launched.output)
        opened = len(os.listdir(f"/proc/{launched.pid}/fd"))
    return ["files"] if opened > SMALL.files else []


@probe(26, "have who reads its output run out of memory", is_ceiling=True)
async def flood_its_reader(rig: Rig) -> list[str]:
    code = """
for _ in range(64):
    os.write(1, bytes(1 << 20))
"""
    # In a process of its own: it is the reader's memory that is looked at.
    async with rig.started(code) as launched:
        pid = os.fork()
        if pid == 0:
            try:
                os._exit(_read_like(launched.output, bounded=rig.is_walled))
            finally:
                os._exit(2)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        assert status != 2, "the reader itself failed"
        return ["memory"] if status else []


def _read_like(output: int, *, bounded: bool) -> int:
    """Read all, by lines as the runtime does, or to the end; return 1 if that took much memory."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    lines = LineBuffer(_MEBIBYTE)
    with open(output, "rb", closefd=False, buffering=0) as file:
        if not bounded:
            file.readall()
        while part := file.read(65536):
            lines.feed(part)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return 1 if grown > 16 * 1024 else 0


@probe(48, "not leave when asked to, and spin", is_ceiling=True)
async def refuse_to_leave(rig: Rig) -> list[str]:
    code = """
import signal
for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGALRM}:
    signal.signal(number, signal.SIG_IGN)
signal.alarm(30)
print("ready", flush=True)
while True:
    pass
"""
    async with rig.started(code) as launched:
        with anyio.fail_after(20):
            await anyio.wait_readable(launched.output)
        began = time.monotonic()
        await launched.end()
        return ["lives"] if launched.processes() or time.monotonic() - began > 5 else []


@probe(
    49,
    "leave what cannot be cleared away",
    nowhere="what clears away is ours in every tier",
    is_ceiling=True,
)
async def litter(rig: Rig) -> list[str]:
    code = """
for number in range(3000):
    os.close(os.open(f"f{number}", os.O_WRONLY | os.O_CREAT, 0o600))
os.close(os.open("n" * 255, os.O_WRONLY | os.O_CREAT, 0o600))
os.close(os.open(b"\\xff\\n\\x1b[2J", os.O_WRONLY | os.O_CREAT, 0o600))
for _ in range(300):
    os.mkdir("d", 0o700)
    os.chdir("d")
for _ in range(500):
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
print("done")
"""
    before = time.monotonic()
    said = await rig.tries(code)
    assert "done" in said, said
    return ["slow"] if time.monotonic() - before > 15 else []
