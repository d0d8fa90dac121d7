"""Probes of the network, and of sockets that are no network: judged by who was called."""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import anyio

from support.corpus.probe import probe
from support.corpus.rig import Rig

_LOOP = "127.0.0.1"
_OPEN = {"advisory": ("*",)}
"""An advisory run has its caller's network."""


@contextmanager
def _listener(kind: int = socket.SOCK_STREAM) -> Generator[socket.socket]:
    with socket.socket(socket.AF_INET, kind) as listener:
        listener.bind((_LOOP, 0))
        if kind == socket.SOCK_STREAM:
            listener.listen()
        listener.setblocking(False)
        yield listener


def _callers(listener: socket.socket) -> list[str]:
    """Return what those said first who called *listener*."""
    found: list[str] = []
    with suppress(BlockingIOError):
        while True:
            caller, _ = listener.accept()
            with caller:
                caller.settimeout(5)
                found.append(caller.recv(100).decode() or "a call")
    return found


def _datagrams(listener: socket.socket) -> list[str]:
    found: list[str] = []
    with suppress(BlockingIOError):
        while True:
            found.append(listener.recv(100).decode())
    return found


@probe(9, "make sockets of kinds that no network namespace contains", stated=_OPEN)
async def other_families(rig: Rig) -> list[str]:
    code = """
kinds = {"vsock": (40, 1, 0), "netlink": (16, 3, 0), "packet": (17, 3, 0), "alg": (38, 5, 0), "unix": (1, 1, 0),
         "bluetooth": (31, 5, 1), "xdp": (44, 3, 0), "smc": (43, 1, 0), "can": (29, 3, 1), "tipc": (30, 5, 0)}
for name, kind in kinds.items():
    route(name, lambda: done(socket.socket(*kind).close()))
route("raw", lambda: done(socket.socket(2, 3, 1).close()) if "lo" not in [n for _, n in socket.if_nameindex()] or len(socket.if_nameindex()) > 1 else "its own")
"""
    return await rig.successes(code)


@probe(10, "call a listener of the host by TCP", stated=_OPEN)
async def call_by_tcp(rig: Rig) -> list[str]:
    code = """
port = int(sys.argv[1])
def say(family, host, name):
    with socket.socket(family) as one:
        one.settimeout(3)
        one.connect((host, port))
        one.sendall(name)
route("IPv4", lambda: say(socket.AF_INET, "127.0.0.1", b"IPv4"))
route("mapped", lambda: say(socket.AF_INET6, "::ffff:127.0.0.1", b"mapped"))
route("any address", lambda: say(socket.AF_INET, "0.0.0.0", b"any address"))
"""
    with _listener() as listener:
        await rig.tries(code, listener.getsockname()[1])
        return _callers(listener)


@probe(11, "call a listener of the host by MPTCP", stated=_OPEN)
async def call_by_mptcp(rig: Rig) -> list[str]:
    code = """
def say():
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262) as one:
        one.settimeout(3)
        one.connect(("127.0.0.1", int(sys.argv[1])))
        one.sendall(b"mptcp")
route("mptcp", say)
"""
    with _listener() as listener:
        await rig.tries(code, listener.getsockname()[1])
        return _callers(listener)


@probe(12, "call a listener of the host by TCP Fast Open", stated=_OPEN)
async def call_by_fast_open(rig: Rig) -> list[str]:
    code = """
FAST = 0x20000000
address = ("127.0.0.1", int(sys.argv[1]))
def sendto():
    with socket.socket() as one:
        one.settimeout(3)
        one.sendto(b"sendto", FAST, address)
def sendmsg():
    with socket.socket() as one:
        one.settimeout(3)
        one.sendmsg([b"sendmsg"], [], FAST, address)
def option():
    with socket.socket() as one:
        one.settimeout(3)
        one.setsockopt(6, 30, 1)
        one.connect(address)
        one.sendall(b"option")
for deed in (sendto, sendmsg, option):
    route(deed.__name__, deed)
"""
    with _listener() as listener:
        await rig.tries(code, listener.getsockname()[1])
        return _callers(listener)


@probe(13, "send datagrams to the host", stated=_OPEN)
async def send_datagrams(rig: Rig) -> list[str]:
    code = """
def send(kind, protocol, name):
    with socket.socket(socket.AF_INET, kind, protocol) as one:
        one.sendto(name, ("127.0.0.1", int(sys.argv[1])))
route("udp", lambda: send(socket.SOCK_DGRAM, 0, b"udp"))
route("udplite", lambda: send(socket.SOCK_DGRAM, 136, b"udplite"))
"""
    with _listener(socket.SOCK_DGRAM) as listener:
        await rig.tries(code, listener.getsockname()[1])
        return _datagrams(listener)


@probe(
    14,
    "call unix sockets of the host",
    # Landlock governs abstract names from ABI 6 on, and no names in files.
    stated={"advisory": ("file", "datagram", "pair")},
)
async def call_unix_sockets(rig: Rig) -> list[str]:
    code = """
path, name = sys.argv[1], "\\0" + sys.argv[2]
def say(address, word):
    with socket.socket(socket.AF_UNIX) as one:
        one.connect(address)
        one.sendall(word)
def send(one, word):
    with one:
        one.sendto(word, path + ".datagram")
route("file", lambda: say(path, b"file"))
route("abstract", lambda: say(name, b"abstract"))
route("datagram", lambda: send(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM), b"datagram"))
route("pair", lambda: send(socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0], b"pair"))
"""
    path = rig.outside / "socket"
    with ExitStack() as sockets:
        streams: list[socket.socket] = []
        datagrams = sockets.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        for address in (str(path), f"\0{rig.canary}"):
            stream = sockets.enter_context(socket.socket(socket.AF_UNIX))
            stream.bind(address)
            stream.listen()
            stream.setblocking(False)
            streams.append(stream)
        datagrams.bind(f"{path}.datagram")
        datagrams.setblocking(False)
        for one in (path, Path(f"{path}.datagram")):
            one.chmod(0o777)
        await rig.tries(code, path, rig.canary)
        return [*(word for one in streams for word in _callers(one)), *_datagrams(datagrams)]


@probe(38, "take over a port of the host's", stated=_OPEN)
async def take_over_a_port(rig: Rig) -> list[str]:
    code = """
one = socket.socket()
one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
one.bind(("127.0.0.1", int(sys.argv[1])))
one.listen(100)
print("listens", flush=True)
import signal
signal.alarm(30)
signal.pause()
"""
    with socket.socket() as ours, ExitStack() as callers:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        ours.bind((_LOOP, 0))
        ours.listen(100)
        ours.setblocking(False)
        async with rig.started(code, ours.getsockname()[1]) as launched:
            with anyio.fail_after(20):
                await anyio.wait_readable(launched.output)
            for _ in range(50):
                callers.enter_context(socket.create_connection(ours.getsockname()))
            came = 0
            with suppress(BlockingIOError):
                while True:
                    ours.accept()[0].close()
                    came += 1
    return ["called in our place"] if came < 50 else []


@probe(15, "listen where the host can call", stated=_OPEN)
async def listen(rig: Rig) -> list[str]:
    code = """
one = socket.socket()
one.bind(("0.0.0.0", 0))
one.listen()
print(one.getsockname()[1], flush=True)
one.settimeout(10)
one.accept()
"""
    async with rig.started(code) as launched:
        with anyio.fail_after(20):
            await anyio.wait_readable(launched.output)
        said = os.read(launched.output, 100).decode()
        if not re.fullmatch(r"\d+\n", said):
            return []
        with socket.socket() as caller:
            return [] if caller.connect_ex((_LOOP, int(said))) else ["called"]


@probe(
    16,
    "learn the names that this machine knows, and ask others",
    stated={"advisory": ("*",), "scoped": ("*",)},
)
async def look_up_names(rig: Rig) -> list[str]:
    code = """
for path in ("/etc/hosts", "/etc/resolv.conf"):
    route(path, lambda: read(path).hex())
route("host name", lambda: os.uname().nodename)
"""
    found = await rig.routes(code)
    own = {path: Path(path).read_bytes().hex() for path in ("/etc/hosts", "/etc/resolv.conf")}
    own["host name"] = os.uname().nodename
    return [name for name, words in own.items() if found.get(name) == words]


@probe(
    16,
    "wait long for a name server that is not there",
    nowhere="how long it takes outside is the network's affair",
    is_ceiling=True,
)
async def wait_for_a_name(rig: Rig) -> list[str]:
    if rig.tier.promises != "sealed":
        return []
    started = time.monotonic()
    await rig.tries('route("name", lambda: socket.getaddrinfo("probe.invalid", 443))')
    return ["slow"] if time.monotonic() - started > 5 else []


@probe(
    28,
    "meet the host in shared memory, queues and abstract names",
    stated={"advisory": ("sysv", "/dev/shm", "abstract name")},
)
async def share_memory(rig: Rig) -> list[str]:
    code = """
import ctypes
libc.shmat.restype = ctypes.c_void_p
def attach():
    address = libc.shmat(int(sys.argv[1]), None, 0)
    if address in (None, ctypes.c_void_p(-1).value):
        raise OSError(ctypes.get_errno(), "shmat")
    return ctypes.string_at(address, 32)
def bind():
    with socket.socket(socket.AF_UNIX) as one:
        one.bind("\\0" + sys.argv[3])
        one.listen()
        return "bound"
route("sysv", attach)
route("/dev/shm", lambda: read("/dev/shm/" + sys.argv[2]))
"""
    with _segment(rig.canary) as segment, _shared_file(rig) as name:
        return await rig.leaks(code, segment, name, rig.canary)


@contextmanager
def _shared_file(rig: Rig) -> Generator[str]:
    path = Path("/dev/shm", f"probe-{os.getpid()}")
    path.write_text(rig.canary)
    path.chmod(0o644)
    try:
        yield path.name
    finally:
        path.unlink()


@contextmanager
def _segment(content: str) -> Generator[int]:
    """Yield the number of a segment of shared memory of the host that holds *content*."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    libc.shmat.restype = ctypes.c_void_p
    number = libc.shmget(0, 4096, 0o1666)
    assert number >= 0
    address = libc.shmat(number, None, 0)
    ctypes.memmove(address, content.encode(), len(content))
    try:
        yield number
    finally:
        libc.shmdt(ctypes.c_void_p(address))
        libc.shmctl(number, 0, None)
