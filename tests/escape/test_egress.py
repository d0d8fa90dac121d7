"""The only way out of a network namespace is the listener that was handed out of it.

Each way is tried from a namespace of its own and without one, and judged by what the host saw.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import uuid
from collections.abc import AsyncGenerator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass

import anyio
import anyio.to_thread
import pytest

from capsule_runtime.core.egress import EgressRules
from capsule_runtime.core.verdicts import Ending, Why
from capsule_runtime.host.egress_proxy import serve_proxy
from capsule_runtime.host.passage import Limits, Tell, places_of_all
from capsule_runtime.testing import FakeNetwork
from support.doors import (
    ADDRESS,
    PATIENCE_SECONDS,
    SHORT,
    Door,
    connect_head,
    greeting_for,
    open_place,
)

HOST = "example.org"
HANDED_OUT = """
import json, socket, sys
ours = socket.socket(fileno=int(sys.argv[1]))
door = socket.create_server(("127.0.0.1", 0))
port = door.getsockname()[1]
socket.send_fds(ours, [str(port).encode()], [door.fileno()])
ours.recv(1)
"""
"""What makes a listener, hands it out and waits, as whatever sets a run up does."""
TRIES = """
def tries(kind, *arguments):
    try:
        WAYS[kind](*arguments)
    except OSError:
        pass

def tcp(port, host="127.0.0.1", family=socket.AF_INET, protocol=0):
    with socket.socket(family, socket.SOCK_STREAM, protocol) as peer:
        peer.settimeout(5)
        peer.connect((host, port))

def mapped(port):
    tcp(port, "::ffff:127.0.0.1", socket.AF_INET6)

def mptcp(port):
    tcp(port, protocol=262)

def fast_open(port):
    with socket.socket() as peer:
        peer.settimeout(5)
        peer.sendto(b"x", 0x20000000, ("127.0.0.1", port))

def udp(port, protocol=0):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM, protocol) as peer:
        peer.sendto(b"x", ("127.0.0.1", port))

def abstract(name):
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(chr(0) + name)

WAYS = {it.__name__: it for it in (tcp, mapped, mptcp, fast_open, udp, abstract)}
tries(sys.argv[2], *json.loads(sys.argv[3]))
"""
LISTENS = """
with socket.create_server(("0.0.0.0", 0)) as everywhere:
    print(everywhere.getsockname()[1], flush=True)
    ours.recv(1)
"""
STEALS = """
found = []
for reuse in (0, socket.SO_REUSEADDR, socket.SO_REUSEPORT):
    with socket.socket() as thief:
        if reuse:
            thief.setsockopt(socket.SOL_SOCKET, reuse, 1)
        try:
            thief.bind(("127.0.0.1", port))
            thief.listen()
        except OSError as exc:
            found.append(exc.errno)
print(json.dumps(found))
"""
LOOKS_UP = """
import time
began = time.monotonic()
try:
    found = bool(socket.getaddrinfo("example.org", 443))
except OSError:
    found = False
print(json.dumps([found, time.monotonic() - began]))
"""
ASKS = """
with socket.create_connection(("127.0.0.1", port), 10) as peer:
    peer.sendall(bytes.fromhex(sys.argv[2]))
    heard = b""
    while data := peer.recv(4096):
        heard += data
print(heard.decode("latin-1"))
"""


@dataclass(frozen=True)
class Inmate:
    """A program that handed its listener out, and waits to be let go on."""

    process: anyio.abc.Process
    listener: socket.socket
    control: socket.socket

    def go(self) -> None:
        """Let it go on."""
        self.control.send(b"!")

    async def said(self) -> str:
        """Return what it says, to its end."""
        assert self.process.stdout is not None
        heard = b""
        with anyio.fail_after(PATIENCE_SECONDS):
            async for data in self.process.stdout:
                heard += data
            assert await self.process.wait() == 0
        return heard.decode()


@pytest.fixture(scope="module")
def namespace() -> list[str]:
    """Return the words before those of a program that is to have a network of its own."""
    if shutil.which("ip") is None or shutil.which("unshare") is None:
        pytest.skip("unshare and ip, which make a network of its own, are not installed")
    own = "-n" if os.geteuid() == 0 else "-Urn"
    words = ["unshare", own, "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
    tried = subprocess.run([*words, "true"], capture_output=True, timeout=PATIENCE_SECONDS)
    if tried.returncode:
        pytest.skip(f"no network namespaces here: {tried.stderr.decode().strip()}")
    return words


@asynccontextmanager
async def inmate(wall: list[str], code: str, *arguments: str) -> AsyncGenerator[Inmate]:
    """Start a program of *code* behind *wall*, and take its listener."""
    control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    words = [sys.executable, "-I", "-S", "-c", HANDED_OUT + code, str(theirs.fileno()), *arguments]
    with ExitStack() as open_here:
        open_here.enter_context(control)
        with theirs:
            process = await anyio.open_process(
                [*wall, *words], stderr=None, pass_fds=[theirs.fileno()]
            )
        async with process:
            try:
                control.settimeout(PATIENCE_SECONDS)
                _, handed, _, _ = await anyio.to_thread.run_sync(
                    lambda: socket.recv_fds(control, 64, 1)
                )
                listener = open_here.enter_context(socket.socket(fileno=handed[0]))
                yield Inmate(process, listener, control)
            finally:
                if process.returncode is None:
                    process.kill()


def canary(kind: str) -> tuple[socket.socket, list[object]]:
    """Return a socket of the host that waits for *kind*, and what leads to it."""
    if kind == "abstract":
        name = f"canary-{uuid.uuid4().hex}"
        waiting = socket.socket(socket.AF_UNIX)
        waiting.bind(f"\0{name}")
        waiting.listen()
        return waiting, [name]
    if kind == "udp":
        waiting = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        waiting.bind(("127.0.0.1", 0))
    elif kind == "mptcp":
        try:
            waiting = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)
        except OSError as exc:
            pytest.skip(f"this machine has no MPTCP: {exc.strerror}")
        waiting.bind(("127.0.0.1", 0))
        waiting.listen()
    else:
        waiting = socket.create_server(("127.0.0.1", 0))
    return waiting, [waiting.getsockname()[1]]


def was_reached(waiting: socket.socket) -> bool:
    """Tell whether anything came to the canary *waiting*."""
    waiting.setblocking(False)
    try:
        if waiting.type == socket.SOCK_DGRAM:
            waiting.recv(16)
        else:
            waiting.accept()[0].close()
    except BlockingIOError:
        return False
    return True


@pytest.mark.parametrize("kind", ["tcp", "mapped", "mptcp", "fast_open", "udp", "abstract"])
async def test_nothing_of_the_host_is_reached_past_the_listener(
    namespace: list[str], kind: str
) -> None:
    reached = dict[str, bool]()
    for name, wall in (("none", list[str]()), ("walled", namespace)):
        waiting, arguments = canary(kind)
        with waiting:
            async with inmate(wall, TRIES, kind, json.dumps(arguments)) as tried:
                tried.go()
                await tried.said()
            reached[name] = was_reached(waiting)

    assert reached == {"none": True, "walled": False}


async def test_a_server_of_a_run_is_its_own(namespace: list[str]) -> None:
    reached = dict[str, bool]()
    for name, wall in (("none", list[str]()), ("walled", namespace)):
        async with inmate(wall, LISTENS) as server:
            server.go()
            assert server.process.stdout is not None
            with anyio.fail_after(PATIENCE_SECONDS):
                port = int(await server.process.stdout.receive())
            with socket.socket() as peer:
                reached[name] = peer.connect_ex(("127.0.0.1", port)) == 0
            server.go()

    assert reached == {"none": True, "walled": False}


async def test_the_port_of_a_listener_is_taken_as_long_as_it_is_served(
    namespace: list[str],
) -> None:
    async with inmate(namespace, STEALS) as thief:
        thief.go()
        errors = json.loads(await thief.said())

    assert len(errors) == 3


async def test_no_name_is_found_and_nobody_waits_for_one(namespace: list[str]) -> None:
    async with inmate(namespace, LOOKS_UP) as asks:
        asks.go()
        found, seconds = json.loads(await asks.said())

    assert found is False
    assert seconds < 5


@asynccontextmanager
async def served(listener: socket.socket, network: FakeNetwork) -> AsyncGenerator[Door]:
    """Serve the proxy of a run that was granted HOST on its *listener*."""
    door, rules = Door(listener.getsockname()[1]), EgressRules.of([HOST])

    async def serve(tell: Tell) -> None:
        await serve_proxy(listener, rules, network, tell, Limits(SHORT, places_of_all()))

    with door.told, door.verdicts:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve, door.told.send_nowait)
            yield door
            tasks.cancel_scope.cancel()


async def test_a_granted_host_is_reached_through_the_listener(namespace: list[str]) -> None:
    greeting = greeting_for(HOST)
    said = connect_head(f"{HOST}:443") + greeting
    async with open_place() as place, inmate(namespace, ASKS, said.hex()) as asks:
        network = FakeNetwork({HOST: [ADDRESS]}, {(ADDRESS, 443): place.port})
        async with served(asks.listener, network) as door:
            asks.go()
            async with place.visitor() as server:
                assert await server.hear(len(greeting)) == greeting
                await server.say(b"hello from outside")
                await server.end()
                assert "hello from outside" in await asks.said()
            verdict = await door.verdict()

    assert verdict.reason is Ending.CLOSED


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("127.0.0.1:{port}", Why.LITERAL),
        ("[::1]:{port}", Why.LITERAL),
        ("[::ffff:127.0.0.1]:{port}", Why.LITERAL),
        ("169.254.169.254:80", Why.LITERAL),
        ("localhost:{port}", Why.HOST),
        (f"{HOST}:443", Why.ADDRESS),
    ],
)
async def test_the_proxy_leads_nobody_to_the_host(
    namespace: list[str], target: str, why: Why
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as waiting:
        port = waiting.getsockname()[1]
        said = connect_head(target.format(port=port))
        network = FakeNetwork({HOST: ["127.0.0.1"]}, {("127.0.0.1", 443): port})
        async with inmate(namespace, ASKS, said.hex()) as asks:
            async with served(asks.listener, network) as door:
                asks.go()
                assert "403 Forbidden" in await asks.said()
                verdict = await door.verdict()

        assert not was_reached(waiting)
    assert verdict.reason is why


async def test_the_listener_of_another_run_is_not_to_be_had(namespace: list[str]) -> None:
    arguments = ("tcp", json.dumps([0]))
    async with inmate(namespace, TRIES, *arguments) as other:
        port = other.listener.getsockname()[1]
        async with inmate(namespace, TRIES, "tcp", json.dumps([port])) as tries:
            tries.go()
            await tries.said()

        assert not was_reached(other.listener)
        other.go()
        await other.said()
