"""What a scoped run listens at is reached by the run, and by nobody else of the machine."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from typing import Any

import anyio
import pytest
from anyio.abc import Process

from capsule_runtime.core.mediation import Endpoint
from capsule_runtime.host.filtering import find_filtering
from capsule_runtime.host.own_listener import OwnListener
from support.filtered import RAW_CALLS
from support.mediated import PATIENCE_SECONDS, STRANGER, Place, open_place, python

WHY_NOT = find_filtering().mediation
pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "there is a broker")
GATEWAY = Endpoint("127.0.0.1", 8999)

NAMED = """
import os, signal, socket, subprocess
def named(function, *arguments):
    try:
        function(*arguments)
    except OSError as exc:
        return errno.errorcode[exc.errno]
    return "done"
def called(address):
    with socket.socket() as caller:
        caller.connect(address)
def listening(address, family=socket.AF_INET):
    ours = socket.socket(family)
    ours.bind(address)
    ours.listen()
    return ours
"""

KNOCK = """
import socket, sys
with socket.socket() as stranger:
    stranger.settimeout(0.3)  # Who is not heard is not refused either: it would wait for long.
    sys.exit(stranger.connect_ex((sys.argv[1], int(sys.argv[2]))) == 0)
"""


@pytest.fixture
def place() -> Iterator[Place]:
    with open_place() as place:
        yield place


def is_let_in(port: int, address: str = "127.0.0.1", user: int | None = None) -> bool:
    """Tell whether *user* (None: we) is let in there, who is none of the run."""
    argv = [python(), "-I", "-S", "-c", KNOCK, address, str(port)]
    return bool(subprocess.run(argv, user=user, check=False, timeout=PATIENCE_SECONDS).returncode)


async def said(process: Process) -> Any:
    """Return what *process* says in its first line."""
    assert process.stdout is not None
    told = b""
    with anyio.fail_after(PATIENCE_SECONDS):
        while not told.endswith(b"\n"):
            told += await process.stdout.receive()
    return json.loads(told)


def program(code: str, *arguments: str) -> tuple[str, ...]:
    return (python(), "-I", "-S", "-c", RAW_CALLS + NAMED + code, *arguments)


ALONE = """
ours = listening((sys.argv[2], 0), getattr(socket, sys.argv[1]))
port = ours.getsockname()[1]
within = "import socket, sys; socket.create_connection(sys.argv[1:]).sendall(b'within')"
child = subprocess.Popen([sys.executable, "-I", "-S", "-c", within, sys.argv[3], str(port)])
visitor, _ = ours.accept()
print(json.dumps([port, visitor.recv(100).decode()]), flush=True)
signal.pause()
"""


@pytest.mark.parametrize(
    ("family", "address", "target"),
    [
        ("AF_INET", "127.0.0.1", "127.0.0.1"),
        ("AF_INET", "0.0.0.0", "127.0.0.1"),
        ("AF_INET", "", "0.0.0.0"),
        ("AF_INET6", "::1", "::1"),
        ("AF_INET6", "::", "127.0.0.1"),
    ],
)
async def test_a_run_reaches_what_it_listens_at_and_nobody_else_does(
    place: Place, family: str, address: str, target: str
) -> None:
    users = [None, STRANGER] if os.geteuid() == 0 else [None]

    async with place.started(*program(ALONE, family, address, target)) as process:
        port, words = await said(process)
        let_in = [is_let_in(port, user=user) for user in users]

    assert words == "within"
    assert not any(let_in)


SERVED = """
import asyncio
async def main():
    async def greet(reader, writer):
        writer.write(b"hello")
        writer.close()
    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    words = set()
    for _ in range(100):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        words.add((await reader.read()).decode())
        writer.close()
    print(json.dumps(sorted(words)))
asyncio.run(main())
"""


async def test_a_server_that_does_not_block_serves_many(place: Place) -> None:
    assert await place.tells(SERVED) == ["hello"]


NODE = """
const server = require("net").createServer((visitor) => visitor.end("hello"))
server.listen(0, () => {
  const caller = require("net").connect(server.address().port, "localhost")
  caller.on("data", (words) => { console.log(String(words)); process.exit() })
})
"""


async def test_a_server_of_node_serves(place: Place) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not here")

    code, told, complaint = await place.runs(node, "-e", NODE)

    assert (code, told) == (0, "hello\n"), complaint


CHOSEN = """
first, second = listening(("127.0.0.1", 4096)), socket.socket()
seen = [first.getsockname()[1], named(second.bind, ("0.0.0.0", 4096))]
kept = os.dup(first.fileno())
first.close()
seen += [named(called, ("127.0.0.1", 4096)), named(second.bind, ("127.0.0.1", 4096))]
os.close(kept)
seen += [named(called, ("127.0.0.1", 4096)), named(second.bind, ("127.0.0.1", 4096))]
seen += [named(called, ("127.0.0.1", 4096)), named(second.listen)]
seen += [named(called, ("127.0.0.1", 4096))]
print(json.dumps(seen))
"""


async def test_a_port_that_a_program_chose_is_taken_as_long_as_it_is_held(place: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as of_the_host:
        port = of_the_host.getsockname()[1]
        told = await place.tells(NAMED + CHOSEN.replace("4096", str(port)))

    assert told == [
        *(port, "EADDRINUSE"),
        *("done", "EADDRINUSE"),
        *("ECONNREFUSED", "done"),
        *("ECONNREFUSED", "done"),
        "done",
    ]


ODD = """
def bound(address):
    with socket.socket() as ours:
        return named(ours.bind, address)
twice = socket.socket()
twice.bind(("127.0.0.1", 0))
caller = socket.create_connection(("127.0.0.1", 8999))
pair, _ = socket.socketpair()
print(json.dumps([
    bound(("127.0.0.1", 80)), bound(("127.0.0.1", 8999)), bound((sys.argv[1], 0)),
    named(twice.bind, ("127.0.0.1", 0)), named(caller.bind, ("127.0.0.1", 0)),
    named(caller.listen), named(pair.bind, "there"),
]))
"""


async def test_where_nobody_may_listen(place: Place) -> None:
    with OwnListener() as listener:
        told = await place.tells(NAMED + ODD, "192.0.2.1", endpoints={GATEWAY: listener.dial})

    assert told == [
        *("EACCES", "EADDRINUSE", "EADDRNOTAVAIL"),
        *("EINVAL", "EINVAL", "EINVAL", "EACCES"),
    ]


UNBOUND = """
ours = socket.socket()
ours.listen()
address, port = ours.getsockname()
called((address, port))
ours.shutdown(socket.SHUT_RDWR)
again = named(ours.listen)
print(json.dumps([address, port, *ours.getsockname(), again]), flush=True)
signal.pause()
"""


async def test_who_listens_without_a_port_is_on_loopback_and_stays_there(place: Place) -> None:
    async with place.started(*program(UNBOUND)) as process:
        address, port, later, later_port, _ = await said(process)
        let_in = is_let_in(port), is_let_in(later_port)

    assert (address, later) == ("127.0.0.1", "127.0.0.1")
    assert let_in == (False, False)


MANY = """
import resource
held = []
for _ in range(100):
    held.append(listening(("127.0.0.1", 0)))
ends = [named(called, ours.getsockname()) for ours in held]
print(json.dumps([ends.count("done"), ends[-1]]))
"""


async def test_of_very_many_only_the_newest_are_reached(place: Place) -> None:
    assert await place.tells(NAMED + MANY) == [64, "done"]


DEFERRED = """
ours = socket.socket()
ours.bind(("127.0.0.1", 0))
ours.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, 5)
ours.listen()
with socket.create_connection(ours.getsockname()) as caller:
    caller.sendall(b"late")
    print(json.dumps(ours.accept()[0].recv(100).decode()))
"""


async def test_who_wants_to_hear_the_first_words_before_hears_them(place: Place) -> None:
    assert await place.tells(NAMED + DEFERRED) == "late"


OTHER = "print(json.dumps([named(called, ('127.0.0.1', int(sys.argv[1])))]))"


async def test_another_run_does_not_reach_it(place: Place) -> None:
    async with place.started(*program(ALONE, "AF_INET", "127.0.0.1", "127.0.0.1")) as process:
        port, _ = await said(process)
        with open_place() as other:
            told = await other.tells(NAMED + OTHER, str(port))

    assert told == ["ECONNREFUSED"]
