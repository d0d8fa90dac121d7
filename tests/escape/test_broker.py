"""A harness that shares the host's network and files, and whose broker holds it: judged from outside."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest
from msgspec import convert

from capsule_runtime.core.mediation import Endpoint
from capsule_runtime.core.seccomp import NOTIFIED
from capsule_runtime.core.syscalls import NUMBERS, known_machine
from capsule_runtime.host import landlock
from capsule_runtime.host.broker import Verdict
from capsule_runtime.host.caller import may_read_everything
from capsule_runtime.host.filtering import find_filtering
from capsule_runtime.host.mediated_sockets import Dial
from capsule_runtime.host.own_listener import OwnListener
from support.capabilities import lowered
from support.filtered import RAW_CALLS
from support.mediated import PATIENCE_SECONDS, Place, dial_address, open_place, python

WHY_NOT = find_filtering().mediation
pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "there is a broker")
TABLE = NUMBERS[known_machine(os.uname().machine)]
GATEWAY = Endpoint("127.0.0.1", 8999)

NAMED = """
import os, socket
def named(function, *arguments):
    try:
        function(*arguments)
    except OSError as exc:
        return errno.errorcode[exc.errno]
    return "done"
"""


@pytest.fixture
def place() -> Iterator[Place]:
    with open_place() as place:
        yield place


class Server:
    """A server of the host's; `served` are the words of those who came."""

    def __init__(self, listener: socket.socket) -> None:
        self.listener = listener
        self.port: int = listener.getsockname()[1]

    @property
    def endpoints(self) -> dict[Endpoint, Dial]:
        """Return the gateway of a run, with this behind it."""
        return {GATEWAY: dial_address("127.0.0.1", self.port)}

    def served(self) -> list[bytes]:
        self.listener.setblocking(False)
        words: list[bytes] = []
        while True:
            try:
                visitor, _ = self.listener.accept()
            except BlockingIOError:
                return words
            with visitor:
                visitor.settimeout(PATIENCE_SECONDS)
                words.append(visitor.recv(100))


@pytest.fixture
def server() -> Iterator[Server]:
    with socket.create_server(("127.0.0.1", 0), backlog=1000) as listener:
        yield Server(listener)


# Connections.

GREET = f"""{NAMED}
ours = socket.socket()
os.set_inheritable(ours.fileno(), len(sys.argv) > 1)
before = os.get_inheritable(ours.fileno()), os.get_blocking(ours.fileno())
ours.connect(("127.0.0.1", 8999))
ours.sendall(b"hello")
after = os.get_inheritable(ours.fileno()), os.get_blocking(ours.fileno())
print(json.dumps([before == after, named(ours.connect, ("127.0.0.1", 8999))]))
"""


@pytest.mark.parametrize("arguments", [(), ("inheritable",)])
async def test_a_run_reaches_what_it_was_given(
    place: Place, server: Server, arguments: tuple[str, ...]
) -> None:
    told = await place.tells(GREET, *arguments, endpoints=server.endpoints)

    assert told == [True, "EISCONN"]
    assert server.served() == [b"hello"]
    assert place.verdicts[0] == Verdict(GATEWAY, 0)


async def test_a_server_that_lets_in_nobody_else_can_stand_behind_an_endpoint(place: Place) -> None:
    with OwnListener() as listener:
        told = await place.tells(GREET, endpoints={GATEWAY: listener.dial})
        visitor, _ = listener.accept()
        with visitor:
            visitor.settimeout(PATIENCE_SECONDS)
            words = visitor.recv(100)

    assert (told, words) == ([True, "EISCONN"], b"hello")


ASYNCHRONOUS = """
import asyncio
async def main():
    reader, writer = await asyncio.open_connection("127.0.0.1", 8999)
    writer.write(b"hello")
    await writer.drain()
    writer.close()
asyncio.run(main())
print(json.dumps("done"))
"""


async def test_a_socket_that_does_not_block_stays_one(place: Place, server: Server) -> None:
    assert await place.tells(ASYNCHRONOUS, endpoints=server.endpoints) == "done"
    assert server.served() == [b"hello"]


NODE = (
    "const s = require('net').connect(8999, '127.0.0.1', () => s.write('hello', () => s.destroy()))"
)


async def test_node_reaches_what_it_was_given(place: Place, server: Server) -> None:
    node = shutil.which("node", path="/usr/bin:/usr/local/bin")
    if not node:
        pytest.skip("there is no node that another user could run")

    status, _, complaint = await place.runs(node, "-e", NODE, endpoints=server.endpoints)

    assert (status, complaint) == (0, "")
    assert server.served() == [b"hello"]


@pytest.fixture
def without_ptrace() -> Iterator[None]:
    """Be root as it is in a container: he may not look into processes of others."""
    if os.geteuid() != 0:
        pytest.skip("only root could look into processes of others")
    with lowered(1 << 19):
        may_read_everything.cache_clear()
        yield
    may_read_everything.cache_clear()


async def test_root_of_a_container_serves_a_run(
    place: Place, server: Server, without_ptrace: None
) -> None:
    told = await place.tells(GREET, endpoints=server.endpoints)
    file = place.file("file")
    changed = await place.tells("import os; os.chmod('file', 0o604); print(json.dumps('done'))")

    assert not may_read_everything()
    assert (told, changed) == ([True, "EISCONN"], "done")
    assert stat.S_IMODE(file.stat().st_mode) == 0o604


STRAY = f"""{NAMED}
port, path = int(sys.argv[1]), sys.argv[2]
def connects(family, address):
    with socket.socket(family) as ours:
        return named(ours.connect, address)
raw = socket.socket()
memory = ctypes.create_string_buffer(b"\\1\\0/run/docker.sock\\0")
print(json.dumps([
    connects(socket.AF_INET, ("127.0.0.1", port)),
    connects(socket.AF_INET6, ("::ffff:127.0.0.1", port)),
    connects(socket.AF_INET6, ("::1", port)),
    connects(socket.AF_INET, ("0.0.0.0", port)),
    connects(socket.AF_INET, ("169.254.169.254", 80)),
    call(int(sys.argv[3]), raw.fileno(), ctypes.addressof(memory), 19),
    call(int(sys.argv[3]), raw.fileno(), 1, 16),
    call(int(sys.argv[3]), raw.fileno(), ctypes.addressof(memory), 1000),
    call(int(sys.argv[3]), 0, ctypes.addressof(memory), 16),
    call(int(sys.argv[3]), 99, ctypes.addressof(memory), 16),
]))
"""


async def test_a_run_reaches_nothing_else(place: Place, server: Server) -> None:
    arguments = (str(server.port), str(place.outside / "socket"), str(TABLE["connect"]))

    told = await place.tells(STRAY, *arguments, endpoints=server.endpoints)

    assert told == [
        *("ECONNREFUSED", "ECONNREFUSED", "ECONNREFUSED", "ECONNREFUSED", "EACCES"),
        *("EACCES", "EFAULT", "EINVAL", "ENOTSOCK", "EBADF"),
    ]
    assert server.served() == []


@contextmanager
def nobody() -> Generator[int]:
    """Hold a port at which nobody listens."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


async def test_an_endpoint_that_is_down_refuses(place: Place) -> None:
    code = NAMED + 'print(json.dumps(named(socket.create_connection, ("127.0.0.1", 8999))))'
    with nobody() as port:
        told = await place.tells(code, endpoints={GATEWAY: dial_address("127.0.0.1", port)})

    assert told == "ECONNREFUSED"
    assert place.verdicts == [Verdict(GATEWAY, errno.ECONNREFUSED)]


BUSY = f"""{NAMED}
waits = sys.argv[1] == "waits"
with socket.socket() as ours:
    ours.setblocking(waits)
    print(json.dumps(named(ours.connect, ("127.0.0.1", 8999))), flush=True)
    if waits:
        ours.sendall(b"hello")
"""


@pytest.mark.parametrize(("mode", "told"), [("waits", "done"), ("goes on", "EINPROGRESS")])
async def test_a_server_that_is_busy_keeps_the_run_waiting_and_not_the_broker(
    place: Place, mode: str, told: str
) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        server = Server(listener)
        with socket.create_connection(("127.0.0.1", server.port)) as first:
            first.sendall(b"first")
            argv = (python(), "-I", "-S", "-c", RAW_CALLS + BUSY, mode)
            async with place.started(*argv, endpoints=server.endpoints) as run:
                assert run.stdout is not None
                said = await run.stdout.receive()
                served = server.served()
                with anyio.fail_after(PATIENCE_SECONDS):
                    await anyio.wait_readable(listener) if mode == "waits" else await run.wait()
                    served += server.served()

    assert json.loads(said) == told
    assert served == ([b"first", b"hello"] if mode == "waits" else [b"first"])


REWRITE = """
import socket, struct, threading, time
good = struct.pack("=H", 2) + struct.pack(">H", 8999) + socket.inet_aton("127.0.0.1") + bytes(8)
bad = good[:2] + struct.pack(">H", int(sys.argv[1])) + good[4:]
memory = ctypes.create_string_buffer(good, 16)
ended = False
def rewrite():
    while not ended:
        memory.raw = bad
        memory.raw = good
thread = threading.Thread(target=rewrite)
thread.start()
found = {"done": 0}
for _ in range(300):
    with socket.socket() as ours:
        told = call(int(sys.argv[2]), ours.fileno(), ctypes.addressof(memory), 16)
        found[told] = found.get(told, 0) + 1
        if told == "done":
            ours.send(b"hello")
ended = True
thread.join()
print(json.dumps(found))
"""


async def test_an_address_that_is_rewritten_meanwhile_leads_nowhere_else(
    place: Place, server: Server
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as forbidden:
        arguments = (str(forbidden.getsockname()[1]), str(TABLE["connect"]))
        told = await place.tells(REWRITE, *arguments, endpoints=server.endpoints)
        forbidden.setblocking(False)
        with pytest.raises(BlockingIOError):
            forbidden.accept()

    found = convert(told, dict[str, int])
    assert set(found) <= {"done", "ECONNREFUSED"} and found["done"] > 0
    assert server.served() == [b"hello"] * found["done"]


SIGNALS = f"""{NAMED}
import signal
caught = []
signal.signal(signal.SIGALRM, lambda *_: caught.append(1))
signal.siginterrupt(signal.SIGALRM, False)
signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
told = []
for _ in range(200):
    with socket.socket() as ours:
        told.append(named(ours.connect, ("127.0.0.1", 8999)))
        ours.send(b"hello")
signal.setitimer(signal.ITIMER_REAL, 0)
print(json.dumps([told.count("done"), len(caught) > 10]))
"""


async def test_signals_make_no_call_twice(place: Place, server: Server) -> None:
    """Those of Go, which interrupts its own threads all the time; its calls start again."""
    told = await place.tells(SIGNALS, endpoints=server.endpoints)

    assert told == [200, True]
    assert server.served() == [b"hello"] * 200


THREADS = f"""{NAMED}
from concurrent.futures import ThreadPoolExecutor
def connect(_):
    with socket.socket() as ours:
        told = named(ours.connect, ("127.0.0.1", 8999))
        ours.send(b"hello")
        return told
with ThreadPoolExecutor(16) as threads:
    print(json.dumps(list(threads.map(connect, range(320))).count("done")))
"""


async def test_many_threads_are_served_each_its_own(place: Place, server: Server) -> None:
    assert await place.tells(THREADS, endpoints=server.endpoints) == 320
    assert server.served() == [b"hello"] * 320


NONSENSE = f"""{NAMED}
import random
chance = random.Random(sys.argv[1])
numbers = list(json.loads(sys.argv[2]).values())
room = ctypes.create_string_buffer(8192)
place = ctypes.addressof(room)
with socket.socket() as ours:
    odd = [0, 1, 3, 16, ours.fileno(), 2**31, 2**32 - 100, 2**64 - 100, 2**64 - 1, place, place + 8190]
    for _ in range(3000):
        room.raw = chance.choice([bytes(8192), b"/" * 8192, chance.randbytes(8192)])
        room.raw = chance.choice([b"\\2\\0", b"file\\0", b"user.a\\0", b"."]) + room.raw[8:]
        call(chance.choice(numbers), *[chance.choice([*odd, chance.getrandbits(64)]) for _ in range(6)])
with socket.socket() as ours:
    print(json.dumps(named(ours.connect, ("127.0.0.1", 8999))))
"""


@pytest.mark.parametrize("chance", ["a", "b"])
async def test_no_nonsense_ends_the_broker(place: Place, server: Server, chance: str) -> None:
    numbers = {call: TABLE[call] for call in NOTIFIED if call in TABLE}

    told = await place.tells(NONSENSE, chance, json.dumps(numbers), endpoints=server.endpoints)

    assert told == "done"


MANY = """
import socket
for port in range(1, 151):
    with socket.socket() as ours:
        ours.connect_ex(("10.0.0.1", port))
        ours.connect_ex(("10.0.0.1", port))
print(json.dumps("done"))
"""


async def test_what_a_run_wanted_is_told_once_and_not_without_end(place: Place) -> None:
    await place.tells(MANY)

    ports = [verdict.endpoint.port for verdict in place.verdicts]
    assert ports == list(range(1, 101))


FLOOD = """
import socket, time
def flood(count):
    slowest = 0
    for _ in range(count):
        with socket.socket() as ours:
            began = time.monotonic()
            ours.connect_ex(("10.0.0.1", 80))
            slowest = max(slowest, time.monotonic() - began)
    return slowest
began = time.monotonic()
flood(int(sys.argv[1]))
print(json.dumps(time.monotonic() - began))
"""
CALLS = 10_000


def resident_kib() -> int:
    status = Path("/proc/self/status").read_text().split()
    return int(status[status.index("VmRSS:") + 1])


async def test_a_flood_of_calls_costs_nothing_that_stays(place: Place) -> None:
    await place.tells(FLOOD, "100")
    descriptors, memory = len(os.listdir("/proc/self/fd")), resident_kib()
    slowest = 0.0
    seconds: object = None

    async with anyio.create_task_group() as tasks:

        async def look() -> None:
            nonlocal slowest
            while True:
                began = anyio.current_time()
                await anyio.sleep(0.01)
                slowest = max(slowest, anyio.current_time() - began)

        tasks.start_soon(look)
        seconds = await place.tells(FLOOD, str(CALLS))
        tasks.cancel_scope.cancel()

    assert isinstance(seconds, float) and seconds < PATIENCE_SECONDS
    assert len(os.listdir("/proc/self/fd")) == descriptors
    assert resident_kib() - memory < 4096
    assert slowest < 1
    assert place.verdicts == [Verdict(Endpoint("10.0.0.1", 80), errno.EACCES)] * 2


ENDLESS = """
import os, socket, threading
def flood():
    while True:
        socket.socket().connect_ex(("10.0.0.1", 80))
for _ in range(4):
    threading.Thread(target=flood).start()
    os.fork()
print(flush=True)
"""


async def test_a_broker_ends_with_its_run_also_when_that_is_killed_in_its_calls(
    place: Place,
) -> None:
    async with place.started(python(), "-c", ENDLESS) as run:
        assert run.stdout is not None
        said = b""
        while said.count(b"\n") < 16:
            said += await run.stdout.receive()
        assert not place.ended.is_set()

        os.killpg(run.pid, signal.SIGKILL)
        with anyio.fail_after(PATIENCE_SECONDS):
            await place.ended.wait()


UNSERVED = f"""{NAMED}
while True:
    told = named(os.chmod, "file", 0o640)
    if told != "done":
        break
    print(flush=True)
print(json.dumps([told, named(socket.socket().connect, ("127.0.0.1", 80))]))
"""


async def test_who_is_not_served_any_more_can_do_nothing_of_it(place: Place) -> None:
    place.file("file")
    async with place.started(python(), "-c", RAW_CALLS + UNSERVED) as run:
        assert run.stdout is not None
        said = await run.stdout.receive()
        place.serving.cancel()
        with anyio.fail_after(PATIENCE_SECONDS):
            async for part in run.stdout:
                said += part

    assert json.loads(said) == ["ENOSYS", "ENOSYS"]


HIDE = """
libc.prctl(4, 0, 0, 0, 0)
print(json.dumps([libc.prctl(3, 0, 0, 0, 0), libc.prctl(4, 0, 0, 0, 0)]))
"""


async def test_a_harness_that_would_hide_is_still_served(place: Place) -> None:
    assert await place.tells(HIDE) == [1, 0]


# Files.

INSIDE = f"""{NAMED}
import tempfile
os.mkdir("d")
folder = os.open("d", os.O_RDONLY)
file = os.open("d/f", os.O_CREAT | os.O_RDWR)
only_read = os.open("d/f", os.O_RDONLY)
os.symlink("d/f", "link")
unlinked = tempfile.TemporaryFile(dir=".")
there = os.getcwd() + "/d/f"
def mode(path="d/f"):
    return oct(os.stat(path).st_mode & 0o7777)
deeds = [
    named(os.chmod, "d/f", 0o601), mode(),
    named(os.chmod, there, 0o602), mode(),
    named(os.chmod, "./d/../d//f", 0o603), mode(),
    named(lambda: os.chmod("f", 0o604, dir_fd=folder)), mode(),
    named(os.fchmod, file, 0o605), mode(),
    named(os.fchmod, only_read, 0o606), mode(),
    named(os.chmod, "link", 0o607), mode(),
    named(os.chmod, "/proc/self/fd/%d" % only_read, 0o610), mode(),
    named(os.chmod, "/dev/fd/%d" % file, 0o611), mode(),
    named(os.fchmod, folder, 0o711), mode("d"),
    named(os.chmod, ".", 0o701), mode("."),
    named(os.fchmod, unlinked.fileno(), 0o612), oct(os.fstat(unlinked.fileno()).st_mode & 0o7777),
    named(os.chown, "d/f", os.getuid(), os.getgid()),
    named(lambda: os.chown("link", -1, os.getgid(), follow_symlinks=False)),
    named(os.fchown, file, -1, -1),
    named(lambda: os.utime("d/f", ns=(5, 7))), os.stat("d/f").st_mtime_ns,
    named(lambda: os.utime("link", ns=(5, 8), follow_symlinks=False)), os.lstat("link").st_mtime_ns,
    named(lambda: os.utime(file, ns=(5, 9))), os.stat("d/f").st_mtime_ns,
    named(os.utime, "d/f"), os.stat("d/f").st_mtime_ns > 9,
    named(os.setxattr, "d/f", "user.mark", b"value"), os.getxattr("d/f", "user.mark").decode(),
    named(os.setxattr, file, "user.mark", b"other"), os.getxattr("d/f", "user.mark").decode(),
    named(os.removexattr, "d/f", "user.mark"), os.listxattr("d/f"),
]
print(json.dumps(deeds))
"""


async def test_a_run_changes_what_it_may_write(place: Place) -> None:
    told = await place.tells(INSIDE)

    modes = ["0o601", "0o602", "0o603", "0o604", "0o605", "0o606", "0o607", "0o610", "0o611"]
    modes += ["0o711", "0o701", "0o612"]
    assert told == [
        *(one for mode in modes for one in ("done", mode)),
        *("done", "done", "done"),
        *("done", 7, "done", 8, "done", 9, "done", True),
        *("done", "value", "done", "other", "done", []),
    ]


OUTSIDE = f"""{NAMED}
outside = sys.argv[1]
target = outside + "/file"
os.symlink(target, "link")
os.symlink(outside, "folder")
os.symlink("../outside/file", "near")
folder = os.open(outside, os.O_RDONLY)
file = os.open(target, os.O_RDONLY)
held = os.open(target, os.O_PATH)
neither = os.open(target, 3)
here = os.open(".", os.O_PATH)
ways = [
    lambda: os.chmod(target, 0o777),
    lambda: os.chmod("../outside/file", 0o777),
    lambda: os.chmod(os.getcwd() + "/../outside/file", 0o777),
    lambda: os.chmod("link", 0o777),
    lambda: os.chmod("near", 0o777),
    lambda: os.chmod("folder/file", 0o777),
    lambda: os.chmod("file", 0o777, dir_fd=folder),
    lambda: os.chmod("../outside/file", 0o777, dir_fd=here),
    lambda: os.chmod("/proc/self/root" + target, 0o777),
    lambda: os.chmod("/proc/self/cwd/../outside/file", 0o777),
    lambda: os.chmod("/proc/%d/fd/%d" % (os.getpid(), held), 0o777),
    lambda: os.chmod("/proc/self/fd/%d" % held, 0o777),
    lambda: os.chmod("/proc/self/fd/%d/file" % folder, 0o777),
    lambda: os.fchmod(file, 0o777),
    lambda: os.fchmod(held, 0o777),
    lambda: os.fchmod(neither, 0o777),
    lambda: os.fchmod(os.openpty()[1], 0o777),
    lambda: os.fchmod(folder, 0o777),
    lambda: os.chown(target, -1, os.getgid()),
    lambda: os.fchown(file, -1, os.getgid()),
    lambda: os.utime(target, (1, 1)),
    lambda: os.utime(file, (1, 1)),
    lambda: os.utime("link", (1, 1)),
    lambda: os.utime(outside, (1, 1)),
    lambda: os.setxattr(target, "user.mark", b""),
    lambda: os.setxattr(file, "user.mark", b""),
]
told = [named(way) for way in ways]
os.chdir(outside)
told += [named(os.chmod, "file", 0o777), named(os.chmod, ".", 0o777)]
if len(sys.argv) > 2:
    numbers = json.loads(sys.argv[2])
    name = ctypes.create_string_buffer(target.encode())
    mark = ctypes.create_string_buffer(b"user.mark")
    packed = ctypes.create_string_buffer(16)
    text, here = ctypes.addressof(name), -100 & 2**64 - 1
    told.append(call(numbers["fchmodat2"], here, text, 0o777, 0))
    told.append(call(numbers["fchmodat2"], held, ctypes.addressof(packed), 0o777, 0x1000))
    told.append(call(numbers["setxattrat"], here, text, 0, ctypes.addressof(mark),
                     ctypes.addressof(packed), 16))
    told.append(call(numbers["file_setattr"], here, text, ctypes.addressof(packed), 24, 0))
print(json.dumps(told))
"""


def known(path: Path) -> tuple[int, int, int, int, list[str]]:
    status = path.stat()
    changed = status.st_ctime_ns
    return status.st_mode, status.st_uid, status.st_gid, changed, os.listxattr(path)


async def test_a_run_changes_nothing_outside(place: Place) -> None:
    """By whatever way it is named, and though the file is the harness's own."""
    target = place.file("file", place.outside)
    before = known(target), known(place.outside)
    numbers = json.dumps(TABLE)

    told = await place.tells(OUTSIDE, str(place.outside), numbers)

    assert set(convert(told, list[str])) <= {"EPERM", "EACCES", "ENOENT"}
    assert (known(target), known(place.outside)) == before


def test_without_a_broker_it_would(place: Place) -> None:
    target = place.file("file", place.outside)
    place.workdir.chmod(0o777)
    user = place.identity.uid if place.identity else None

    told = subprocess.run(
        [python(), "-I", "-S", "-c", RAW_CALLS + OUTSIDE, str(place.outside)],
        capture_output=True,
        cwd=place.workdir,
        user=user,
        check=True,
    )

    assert json.loads(told.stdout).count("done") > 20
    assert stat.S_IMODE(target.stat().st_mode) == 0o777


WALLED = f"""{NAMED}
told = [named(open, sys.argv[1]), named(os.stat, sys.argv[1]), named(os.chmod, sys.argv[1], 0o777)]
told += [named(lambda: os.fchmod(os.open(sys.argv[1], 3), 0o777))]
open("file", "w").close()
told += [named(os.chmod, "file", 0o601), oct(os.stat("file").st_mode & 0o777)]
told += [named(socket.socket().connect, ("127.0.0.1", 8999))]
print(json.dumps(told))
"""


async def test_behind_landlock_nothing_changes_for_the_broker(place: Place, server: Server) -> None:
    abi = landlock.version()
    if abi < 1:
        pytest.skip(f"there is no Landlock: {os.strerror(-abi)}")
    target = place.file("file", place.outside)
    place.behind_landlock = True

    told = await place.tells(WALLED, str(target), endpoints=server.endpoints)

    assert told == ["EACCES", "done", "EPERM", "EPERM", "done", "0o601", "done"]
    assert stat.S_IMODE(target.stat().st_mode) == 0o600


SWAP = f"""{NAMED}
import threading, time
os.mkdir("d"); os.mkdir("e")
open("d/file", "w").close()
os.symlink(sys.argv[1], "link")
libc.renameat2.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint]
ended = False
def swap():
    while not ended:
        libc.renameat2(-100, b"d", -100, b"link", 2)
thread = threading.Thread(target=swap)
thread.start()
found, until = {{}}, time.monotonic() + 30
while (len(found) < 2 or sum(found.values()) < 2000) and time.monotonic() < until:
    told = named(os.chmod, "d/file", 0o777)
    found[told] = found.get(told, 0) + 1
ended = True
thread.join()
print(json.dumps(found))
"""


async def test_a_folder_that_is_swapped_for_a_link_meanwhile_leads_nowhere(place: Place) -> None:
    target = place.file("file", place.outside)
    before = known(target)

    told = await place.tells(SWAP, str(place.outside))

    found = convert(told, dict[str, int])
    assert found["done"] > 0 and found["EPERM"] > 0
    assert known(target) == before


EXCHANGE = f"""{NAMED}
import threading, time
own = os.open("own", os.O_CREAT | os.O_RDWR, 0o600)
foreign = os.open(sys.argv[1], os.O_RDONLY)
number = os.dup(own)
ended = False
def exchange():
    while not ended:
        os.dup2(foreign, number)
        os.dup2(own, number)
thread = threading.Thread(target=exchange)
thread.start()
found, until = {{}}, time.monotonic() + 30
while (len(found) < 2 or sum(found.values()) < 3000) and time.monotonic() < until:
    told = named(os.fchmod, number, 0o777)
    found[told] = found.get(told, 0) + 1
ended = True
thread.join()
print(json.dumps(found))
"""


async def test_a_descriptor_that_is_exchanged_meanwhile_changes_nothing_else(place: Place) -> None:
    target = place.file("file", place.outside)
    before = known(target)

    told = await place.tells(EXCHANGE, str(target))

    found = convert(told, dict[str, int])
    assert found["done"] > 0 and found["EPERM"] > 0
    assert known(target) == before


NAMESAKE = f"""{NAMED}
open("file", "w").close()
gone = os.open("file", os.O_RDONLY)
os.unlink("file")
os.close(os.open("file (deleted)", os.O_CREAT, 0o600))
print(json.dumps([named(os.fchmod, gone, 0o777), oct(os.stat("file (deleted)").st_mode & 0o777)]))
"""


async def test_a_file_that_is_gone_is_not_taken_for_its_namesake(place: Place) -> None:
    assert await place.tells(NAMESAKE) == ["EPERM", "0o600"]


AS_ITSELF = f"""{NAMED}
foreign, own = sys.argv[1:]
print(json.dumps([
    named(os.chmod, foreign, 0o666),
    named(lambda: os.utime(foreign, (1, 1))),
    named(os.chown, own, 0, -1),
    named(os.chown, own, -1, 0),
    named(os.chown, own, 2**32 - 2, 2**31),
    named(os.setxattr, own, "security.capability", b"\\1\\0\\0\\2" + bytes(16)),
    named(os.setxattr, own, "trusted.mark", b""),
    named(os.setxattr, own, "system.posix_acl_access", b"\\2\\0\\0\\0"),
]))
"""


async def test_the_broker_lends_a_run_no_rights_of_its_own(place: Place) -> None:
    if place.identity is None:
        pytest.skip("only a broker that is root has rights that it could lend")
    foreign, own = place.workdir / "foreign", place.file("own")
    foreign.write_text("")
    foreign.chmod(0o600)
    before = known(foreign), known(own)[:3]

    told = await place.tells(AS_ITSELF, str(foreign), str(own))

    assert told == ["EPERM"] * 7 + ["ENOTSUP"]
    assert (known(foreign), known(own)[:3]) == before


PROGRAMS = r"""set -e
    mkdir d; echo a > d/a; chmod 750 d; chmod 640 d/a; ln -s a d/l; touch -d @5 d/a
    tar cf t.tar d; mkdir out; tar xpf t.tar -C out
    cp -a d copy; install -m 700 d/a installed
    stat -c '%a %Y %n' out/d out/d/a copy/a installed | sed 's/ [0-9]\{6,\} / . /'"""


async def test_programs_that_copy_files_work(place: Place) -> None:
    status, said, complaint = await place.runs("/bin/sh", "-c", PROGRAMS)

    assert (status, complaint) == (0, "")
    assert said.splitlines() == ["750 . out/d", "640 5 out/d/a", "640 5 copy/a", "700 . installed"]


async def test_git_works(place: Place) -> None:
    if not shutil.which("git", path="/usr/bin:/usr/local/bin"):
        pytest.skip("git is not installed")
    script = """set -e
        git init -q one; cd one; echo a > a; git add a; git config core.fileMode true
        git -c user.name=n -c user.email=e commit -qm one; git gc -q
        git clone -q . ../two; git -C ../two log --format=%s"""

    assert await place.runs("/bin/sh", "-c", script) == (0, "one\n", "")
