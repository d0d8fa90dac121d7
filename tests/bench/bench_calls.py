"""What a whole gateway adds to a model call: direct, through a run's own, through LiteLLM's proxy.

Run: python tests/bench/bench_calls.py [PATH OF litellm]

Four processes: a provider, which streams Chat Completions and writes into each piece when it sent it;
the supervisor of one run under a ceiling in dollars, whose calls are all judged, held for, logged and
settled; LiteLLM, if its program is named; and this one, whose streams go to each of them in turn.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from socket import create_connection, create_server
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.bench_gateway import Seen, cpu_seconds, pss_mib, say
from support.command import PROGRAM

MODEL = "gpt-5-mini"
PIECES, GAP_SECONDS, ROUNDS = 40, 0.05, 2
ALONE = 200
KEY = "sk-bench-0123456789abcdef"
_MASTER = "sk-" + "9f3b" * 16
_STAMP = re.compile(rb"@(\d+)@")
_USAGE = (
    '{"id":"c","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":40,"total_tokens":49}}'
)


class Way(NamedTuple):
    """Where calls go: to *port*, at *path*, with *key*; by the process *pid*."""

    name: str
    port: int
    path: str
    key: str
    pid: int


# The provider.


async def attend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            length = int(re.findall(rb"(?i)content-length: (\d+)", head)[0])
            body = await reader.readexactly(length)
            writer.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                b"Transfer-Encoding: chunked\r\n\r\n"
            )
            for number in range(1 if b"short" in body else PIECES):
                if number:
                    await asyncio.sleep(GAP_SECONDS)
                content = f"@{time.monotonic_ns()}@"
                _send(writer, json.dumps({"id": "c", "choices": [{"delta": {"content": content}}]}))
            _send(writer, _USAGE)
            _send(writer, "[DONE]")
            writer.write(b"0\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


def _send(writer: asyncio.StreamWriter, data: str) -> None:
    piece = f"data: {data}\n\n".encode()
    writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))


async def serve() -> None:
    server = await asyncio.start_server(attend, "127.0.0.1", 0, backlog=2048)
    say(str(server.sockets[0].getsockname()[1]))
    await server.serve_forever()


# The ways.


@contextmanager
def provider() -> Generator[Way]:
    command = [sys.executable, __file__, "provider"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield Way("direct", int(process.stdout.readline()), "/v1", KEY, process.pid)
        finally:
            process.terminate()


@contextmanager
def run_of_ours(folder: Path, provider_port: int) -> Generator[Way]:
    """Start a run that waits, and yield the way through its gateway."""
    config, told = folder / "config.toml", folder / "told"
    config.write_text(
        f'[providers.openai]\nbase_url = "http://127.0.0.1:{provider_port}/v1"\nkey_env = "KEY"\n'
    )
    config.chmod(0o600)
    capsule = folder / "capsule"
    capsule.mkdir()
    script = f"env | grep ^OPENAI > {told}.new; mv {told}.new {told}; read line; read stop"
    (capsule / "capsule.toml").write_text(
        'name = "bench"\n[harness]\ndriver = "jsonl"\n'
        f"command = {json.dumps(['sh', '-c', script])}\n"
        '[capabilities]\nproviders = ["openai"]\n[limits.idle]\nfirst_token = "1h"\n'
    )
    words = ("--grant", "provider=openai", "--containment", "advisory", "--max-usd", "1000")
    with subprocess.Popen(
        [PROGRAM, "run", str(capsule), "--task", "wait", "--workdir", str(folder), *words],
        env={
            **os.environ,
            "CAPSULE_CONFIG": str(config),
            "KEY": KEY,
            "CAPSULE_STATE": f"{folder}/s",
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            while not told.exists():
                assert process.poll() is None, "the run has ended"
                time.sleep(0.01)
            values = dict(line.split("=", 1) for line in told.read_text().splitlines())
            port = int(values["OPENAI_BASE_URL"].split(":")[2].split("/")[0])
            yield Way("capsule", port, "/openai/v1", values["OPENAI_API_KEY"], process.pid)
        finally:
            process.terminate()


@contextmanager
def litellm(program: str, folder: Path, provider_port: int) -> Generator[Way]:
    config = folder / "litellm.yaml"
    config.write_text(
        f"model_list:\n- model_name: {MODEL}\n  litellm_params:\n    model: openai/{MODEL}\n"
        f"    api_base: http://127.0.0.1:{provider_port}/v1\n    api_key: {KEY}\n"
    )
    with create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
    with subprocess.Popen(
        [program, "--config", str(config), "--port", str(port), "--host", "127.0.0.1"],
        env={**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_MASTER_KEY": _MASTER},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            while not _listens(port):
                assert process.poll() is None, "LiteLLM has ended"
                time.sleep(0.1)
            yield Way("litellm", port, "/v1", _MASTER, process.pid)
        finally:
            process.terminate()


def _listens(port: int) -> bool:
    try:
        create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


# This process.


def request(way: Way, kind: str) -> bytes:
    asked = {
        "model": MODEL,
        "max_completion_tokens": 1000,
        "stream": True,
        "messages": [{"role": "user", "content": kind + "x" * 2000}],
    }
    body = json.dumps(asked).encode()
    head = (
        f"POST {way.path}/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:{way.port}\r\n"
        f"Authorization: Bearer {way.key}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def follow(way: Way, seen: Seen, calls: int, kind: str) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", way.port)
    for _ in range(calls):
        began, is_first, rest = time.monotonic_ns(), True, b""
        writer.write(request(way, kind))
        while not rest.endswith(b"\r\n0\r\n\r\n"):
            data = await reader.read(65536)
            now = time.monotonic_ns()
            assert data, "it was cut off"
            stamps = _STAMP.findall(data)
            if is_first and stamps:
                seen.first.append((now - began) / 1e6)
                is_first = False
            seen.pieces += [(now - int(stamp)) / 1e6 for stamp in stamps]
            rest = (rest + data)[-7:]
    writer.close()
    await writer.wait_closed()


async def many(way: Way, streams: int) -> Seen:
    seen = Seen()
    async with asyncio.TaskGroup() as tasks:
        for _ in range(streams):
            tasks.create_task(follow(way, seen, ROUNDS, "long"))
            await asyncio.sleep(PIECES * GAP_SECONDS / streams)
    return seen


async def alone(way: Way) -> Seen:
    await follow(way, Seen(), 20, "short")
    seen = Seen()
    await follow(way, seen, ALONE, "short")
    return seen


def line(what: str, way: Way, seen: Seen, cpu: float, calls: int) -> str:
    first, pieces = (
        f"p50 {statistics.median(ms):.2f} p99 {statistics.quantiles(ms, n=100)[98]:.2f} ms"
        for ms in (seen.first, seen.pieces)
    )
    each = f"{cpu / calls * 1000:.1f} ms CPU a call, PSS {pss_mib(way.pid):.0f} MiB"
    return f"{what}, {way.name}: first piece {first}; each piece {pieces}; {each}"


def main(program: str | None) -> None:
    with tempfile.TemporaryDirectory() as name, ExitStack() as open_here:
        folder = Path(name)
        direct = open_here.enter_context(provider())
        ways = [direct, open_here.enter_context(run_of_ours(folder, direct.port))]
        if program is not None:
            ways.append(open_here.enter_context(litellm(program, folder, direct.port)))
        say(f"load {os.getloadavg()[0]:.1f}")
        for way in ways:
            before = cpu_seconds(way.pid)
            seen = asyncio.run(alone(way))
            say(line("one after another", way, seen, cpu_seconds(way.pid) - before, ALONE + 20))
        for streams in (1, 50, 200):
            for way in ways:
                before = cpu_seconds(way.pid)
                seen = asyncio.run(many(way, streams))
                used = cpu_seconds(way.pid) - before
                say(line(f"{streams} streams", way, seen, used, streams * ROUNDS))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["provider"]:
            asyncio.run(serve())
        case rest:
            main(rest[0] if rest else None)
