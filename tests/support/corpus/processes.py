"""Probes of other processes: to know them, to change them, to end them and to outlive them."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Generator
from contextlib import contextmanager

import anyio

from support.corpus.probe import probe
from support.corpus.rig import Rig

_VICTIM = """
import os, sys, time
secret = os.environ["VICTIM"]
print("ready", flush=True)
sys.stdin.read()
"""


@contextmanager
def _victim(rig: Rig) -> Generator[subprocess.Popen[bytes]]:
    """Have a process of the caller's that keeps the canary in environment, arguments and memory."""
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _VICTIM, rig.canary],
        env={"VICTIM": rig.canary},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=rig.outside,
    ) as victim:
        assert victim.stdout is not None
        assert victim.stdout.readline() == b"ready\n"
        try:
            yield victim
        finally:
            victim.kill()


@probe(
    6,
    "read what other processes were started with",
    stated={"advisory": ("cmdline",), "scoped": ("cmdline",)},
)
async def read_environments(rig: Rig) -> list[str]:
    code = """
def scan(file):
    found = b""
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                found += read(f"/proc/{name}/{file}")
            except OSError:
                pass
    return found
route("environ", lambda: scan("environ"))
route("cmdline", lambda: scan("cmdline"))
"""
    with _victim(rig):
        return await rig.leaks(code)


@probe(7, "look into, trace and end another process")
async def attack_a_process(rig: Rig) -> list[str]:
    code = """
pid = int(sys.argv[1])
def memory():
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb") as file:
        stack = next(line for line in maps if "[stack]" in line).split("-")
        first, last = int(stack[0], 16), int(stack[1].split()[0], 16)
        file.seek(first)
        return "found" if sys.argv[2].encode() in file.read(last - first) else "not found"
route("memory", memory)
route("folder", lambda: os.readlink(f"/proc/{pid}/cwd"))
route("root", lambda: read(f"/proc/{pid}/root" + sys.argv[3]))
def attach():
    if libc.ptrace(16, pid, 0, 0):
        raise OSError(ctypes.get_errno(), "ptrace")
    os.waitpid(pid, 0x40000000)
    libc.ptrace(17, pid, 0, 0)
    return "traced"
route("ptrace", attach)
def end():
    os.kill(pid, 9)
route("kill", end)
"""
    with _victim(rig) as victim:
        found = await rig.routes(code, victim.pid, rig.canary, rig.secret)
        told = {
            "memory": found["memory"] == "found",
            "folder": found["folder"] == str(rig.outside),
            "root": rig.canary in found["root"],
            "ptrace": found["ptrace"] == "traced",
            # It cannot have been told by the harness: the host sees how its process ended.
            "kill": victim.poll() is not None or _is_dead(victim.pid),
        }
    return [name for name, is_so in told.items() if is_so]


def _is_dead(pid: int) -> bool:
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


@probe(8, "look into the first process that it sees, and its parent")
async def look_into_init(rig: Rig) -> list[str]:
    code = """
for pid in (1, os.getppid()):
    route(f"environ of {pid}", lambda: done(read(f"/proc/{pid}/environ")))
    route(f"memory of {pid}", lambda: done(os.close(os.open(f"/proc/{pid}/mem", os.O_RDONLY))))
    route(f"root of {pid}", lambda: done(os.listdir(f"/proc/{pid}/root/")))
    route(f"descriptors of {pid}", lambda: done(os.readlink(f"/proc/{pid}/fd/0")))
"""
    return await rig.successes(code)


@probe(19, "inherit a descriptor")
async def inherit(rig: Rig) -> list[str]:
    code = """
for number in range(3, 256):
    try:
        os.lseek(number, 0, 0)
        route(f"descriptor {number}", lambda: os.read(number, 100))
    except OSError:
        pass
route("none", lambda: "")
"""
    return ["descriptor"] if await rig.leaks(code) else []


@probe(20, "open its stdio anew, for more than it was given")
async def reopen_stdio(rig: Rig) -> list[str]:
    code = """
for number in range(3):
    route(f"stdio {number}", lambda: os.write(os.open(f"/proc/self/fd/{number}", os.O_RDWR | os.O_NONBLOCK), b"canary\\n"))
"""
    await rig.tries(code)
    return ["stdin"] if rig.stdin.read_text() else []


@probe(24, "live on after its end")
async def live_on(rig: Rig) -> list[str]:
    code = """
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        import signal
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        os.closerange(0, 100)
        signal.alarm(30)
        while True:
            signal.pause()
os._exit(0)
"""
    async with rig.started(code) as launched:
        await rig.said(launched)
        await launched.end()
        return ["lives"] if launched.processes() else []


@probe(37, "reach what watches it", stated={"advisory": ("sockets", "door")})
async def reach_the_warden(rig: Rig) -> list[str]:
    code = """
key, door = sys.argv[1:3]
route("key", lambda: done(read(key)))
def connect():
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as one:
        one.connect(door)
        return "done"
route("door", connect)
route("sockets", lambda: "done" if door.encode() in read("/proc/net/unix") else "none")
route("its own", lambda: "done" if any("socket:" in os.readlink(f"/proc/self/fd/{n}") for n in os.listdir("/proc/self/fd") if os.path.lexists(f"/proc/self/fd/{n}")) else "none")
"""
    await rig.cell.tries("", None)
    return await rig.successes(code, rig.door.with_name(rig.door.name + ".key"), rig.door)


@probe(39, "reach another run", stated={"advisory": ("/dev/shm",)})
async def reach_another_run(rig: Rig) -> list[str]:
    waits = """
for path in (os.environ["HOME"] + "/secret", "/dev/shm/" + sys.argv[2]):
    try:
        with open(path, "w") as file:
            file.write(sys.argv[1])
        os.chmod(path, 0o644)
    except OSError:
        pass  # Not every tier has it.
print("ready", flush=True)
import signal
signal.alarm(30)
signal.pause()
"""
    code = """
pid, home, name = sys.argv[1:4]
route("HOME", lambda: read(home + "/secret"))
route("own HOME", lambda: read(os.environ["HOME"] + "/secret") if os.environ["HOME"] != home else b"")
route("/dev/shm", lambda: read("/dev/shm/" + name))
route("environ", lambda: read(f"/proc/{pid}/environ"))
route("root", lambda: read(f"/proc/{pid}/root" + "/dev/shm/" + name))
route("kill", lambda: os.kill(int(pid), 9))
route("kill all", lambda: os.kill(-1, 9) if os.getuid() else None)
"""
    other = Rig(rig.folder / uuid.uuid4().hex, rig.cell.warden, rig.tier, rig.door)
    name = f"probe-{rig.canary[:8]}"
    try:
        async with other.started(
            waits, rig.canary, name, HOME=other.seen_home(), RUN=rig.canary
        ) as it:
            with anyio.fail_after(20):
                await anyio.wait_readable(it.output)
            alone = "" if rig.is_walled else "import os; os.kill = lambda *_: None\n"
            found = await rig.leaks(alone + code, it.pid, other.cell.home, name)
            alive = it.pid in it.processes()
    finally:
        with_name = f"/dev/shm/{name}"
        if os.path.exists(with_name):
            os.unlink(with_name)
    return found if alive else [*found, "kill"]
