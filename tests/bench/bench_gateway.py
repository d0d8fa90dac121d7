"""What the gateway adds to a model's stream: to its first byte, to each piece, in CPU and memory.

Run: python tests/bench/bench_gateway.py [asyncio|trio]

Three processes: the upstream, which writes into each piece the instant at which it sends it; the
gateway; and this one, whose streams go to the upstream directly or through the gateway. Streams begin
one after the other, as harnesses do, and go on for two seconds with 20 pieces a second each.
"""

from __future__ import annotations

import asyncio
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from socket import create_server

import anyio

sys.path.insert(0, str(Path(__file__).parents[1]))

from capsule_runtime.core.origins import Origin
from capsule_runtime.host.gateway import Gateway, open_upstreams, serve_gateway
from capsule_runtime.host.passage import places_of_all
from support.gateway import AUTHORITY, Always, post

PIECES = 40
GAP_SECONDS = 0.05
PADDING = b"x" * 160
ROUNDS = 2
CALLS_ALONE = 300
BULK_BYTES = 64 * 1024 * 1024
BULK_PIECE = 16 * 1024
_STAMP = re.compile(rb"@(\d+)@")
_PSS = re.compile(r"^Pss: +(\d+) kB", re.MULTILINE)


# The upstream.


async def attend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            length = int(re.findall(rb"(?i)content-length: (\d+)", head)[0])
            await reader.readexactly(length)
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            pieces = 1 if b"/short" in head else PIECES
            await (bulk(writer) if b"/bulk" in head else stream(writer, pieces))
            writer.write(b"0\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def stream(writer: asyncio.StreamWriter, pieces: int) -> None:
    for number in range(pieces):
        if number:
            await asyncio.sleep(GAP_SECONDS)
        piece = b"data: @%d@%s\n\n" % (time.monotonic_ns(), PADDING)
        writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))


async def bulk(writer: asyncio.StreamWriter) -> None:
    piece = b"%x\r\n%s\r\n" % (BULK_PIECE, b"x" * BULK_PIECE)
    for _ in range(BULK_BYTES // BULK_PIECE):
        writer.write(piece)
        await writer.drain()


async def serve_upstream() -> None:
    server = await asyncio.start_server(attend, "127.0.0.1", 0, backlog=2048)
    say(str(server.sockets[0].getsockname()[1]))
    await server.serve_forever()


# The gateway.


class Silent:
    """A meter that keeps nothing."""

    def head(self, status: int, headers: object) -> None:
        pass

    def chunk(self, data: bytes) -> bytes:
        return data

    async def end(self, ending: object) -> None:
        pass


async def serve_the_gateway(port: int) -> None:
    policy = Always(Origin("http", "127.0.0.1", port))
    policy.new_tape = Silent  # type: ignore[assignment]  # a Tape keeps all that it is told
    with create_server(("127.0.0.1", 0), backlog=2048) as listener:
        async with open_upstreams() as upstreams:
            say(str(listener.getsockname()[1]))
            await serve_gateway(listener, Gateway(policy, upstreams, [AUTHORITY], places_of_all()))


# This process.


@dataclass
class Seen:
    """In milliseconds: until the head of an answer came, and how old each piece was."""

    first: list[float] = field(default_factory=list[float])
    pieces: list[float] = field(default_factory=list[float])


async def follow(port: int, seen: Seen, calls: int, target: str = "/v1") -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for _ in range(calls):
        began, is_first, rest = time.monotonic_ns(), True, b""
        writer.write(post(b"x" * 2000, target=target))
        while not rest.endswith(b"0\r\n\r\n"):
            data = await reader.read(65536)
            now = time.monotonic_ns()
            assert data
            if is_first:
                seen.first.append((now - began) / 1e6)
                is_first = False
            seen.pieces += [(now - int(stamp)) / 1e6 for stamp in _STAMP.findall(data)]
            rest = (rest + data)[-5:]
    writer.close()
    await writer.wait_closed()


async def follow_many(port: int, streams: int) -> Seen:
    seen = Seen()
    async with asyncio.TaskGroup() as tasks:
        for _ in range(streams):
            tasks.create_task(follow(port, seen, ROUNDS))
            await asyncio.sleep(PIECES * GAP_SECONDS / streams)
    return seen


async def call_alone(port: int) -> Seen:
    seen = Seen()
    await follow(port, Seen(), 20, "/short")
    await follow(port, seen, CALLS_ALONE, "/short")
    return seen


async def take_bulk(port: int) -> float:
    """Return the seconds that it took."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    began, size = time.monotonic(), 0
    writer.write(post(target="/bulk"))
    while size < BULK_BYTES:
        size += len(await reader.read(262_144))
    writer.close()
    return time.monotonic() - began


@contextmanager
def started(*argv: str) -> Generator[tuple[int, int]]:
    """Yield the process and the port of one of the other two programs."""
    command = [sys.executable, __file__, *argv]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.pid, int(process.stdout.readline())
        finally:
            process.terminate()


def pss_mib(pid: int) -> float:
    found = _PSS.search(Path(f"/proc/{pid}/smaps_rollup").read_text())
    assert found is not None
    return int(found[1]) / 1024


def cpu_seconds(pid: int) -> float:
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def summary(name: str, direct: list[float], through: list[float]) -> str:
    """Return how much later half and 99 of 100 are."""
    (d50, d99), (t50, t99) = (
        (statistics.median(ms), statistics.quantiles(ms, n=100)[98]) for ms in (direct, through)
    )
    return (
        f"  {name}: direct p50 {d50:.2f} p99 {d99:.2f} ms, through p50 {t50:.2f} p99 {t99:.2f} ms,"
        f" added p50 {t50 - d50:.2f} p99 {t99 - d99:.2f} ms"
    )


def measure(streams: int, direct: int, through: int, pid: int) -> None:
    plain = asyncio.run(follow_many(direct, streams))
    before, began = cpu_seconds(pid), time.monotonic()
    seen = asyncio.run(follow_many(through, streams))
    share = (cpu_seconds(pid) - before) / (time.monotonic() - began)
    say(f"{streams} streams, gateway {share:.0%} of a core, PSS {pss_mib(pid):.1f} MiB")
    say(summary("first byte", plain.first, seen.first))
    say(summary("each piece", plain.pieces, seen.pieces))


def measure_alone(direct: int, through: int) -> None:
    plain, seen = asyncio.run(call_alone(direct)), asyncio.run(call_alone(through))
    say(f"{CALLS_ALONE} calls of one piece, one after the other")
    say(summary("first byte", plain.first, seen.first))


def measure_bulk(direct: int, through: int, pid: int) -> None:
    plain = asyncio.run(take_bulk(direct))
    before = cpu_seconds(pid)
    seconds = asyncio.run(take_bulk(through))
    each = (cpu_seconds(pid) - before) / (BULK_BYTES / 1e6) * 1000
    rates = f"direct {BULK_BYTES / 1e6 / plain:.0f} MB/s, through {BULK_BYTES / 1e6 / seconds:.0f}"
    say(f"bulk: {rates} MB/s, {each:.2f} ms CPU per MB, PSS {pss_mib(pid):.1f} MiB")


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main(backend: str) -> None:
    with started("upstream") as (_, direct), started("gateway", str(direct), backend) as gateway:
        pid, through = gateway
        say(f"{backend}, load {os.getloadavg()[0]:.1f}; gateway idle: PSS {pss_mib(pid):.1f} MiB")
        measure_alone(direct, through)
        for streams in (1, 50, 200):
            measure(streams, direct, through, pid)
        measure_bulk(direct, through, pid)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["upstream"]:
            asyncio.run(serve_upstream())
        case ["gateway", port, backend]:
            anyio.run(serve_the_gateway, int(port), backend=backend)
        case rest:
            main(rest[0] if rest else "asyncio")
