"""Programs that people use, told of the proxy by their environment alone, reach what was granted."""

from __future__ import annotations

import os
import shutil
import ssl
import subprocess
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from anyio.abc import ByteStream
from anyio.streams.tls import TLSListener

from capsule_runtime.core.proxy_env import proxy_environment
from capsule_runtime.core.verdicts import Ending, Why
from capsule_runtime.testing import FakeNetwork
from support.doors import ADDRESS, PATIENCE_SECONDS, Door, leading_to, open_place, open_proxy

HOST = "api.example.org"
BODY = "the model says hello"

PYTHON = """
import sys, urllib.request
print(urllib.request.urlopen(sys.argv[1], timeout=10).read().decode())
"""
NODE = """
const [proxy, target] = [new URL(process.env.HTTPS_PROXY), new URL(process.argv[1])];
const head = {host: proxy.hostname, port: proxy.port, method: 'CONNECT', path: `${target.host}:443`};
require('http').request(head).on('connect', (answer, socket) => {
  if (answer.statusCode !== 200) { console.error(answer.statusCode); process.exit(1); }
  require('https').get(target, {socket, agent: false}, (page) => {
    page.on('data', (data) => process.stdout.write(data)).on('end', () => socket.destroy());
  });
}).end();
"""
CURL = ["curl", "--silent", "--show-error", "--max-time", "10"]
CLIENTS = {
    "curl": CURL,
    "python": [sys.executable, "-c", PYTHON],
    "node": ["node", "-e", NODE],
    "git": ["git", "ls-remote"],
}


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file with a key and a certificate for every name beneath example.org."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl, which makes certificates, is not installed")
    made = tmp_path_factory.mktemp("tls") / "both.pem"
    words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    names = ("-subj", "/CN=x", "-addext", "subjectAltName=DNS:*.example.org")
    subprocess.run(
        ["openssl", *words.split(), *names, "-keyout", str(made), "-out", f"{made}.crt"],
        check=True,
        capture_output=True,
        timeout=PATIENCE_SECONDS,
    )
    made.write_bytes(made.read_bytes() + Path(f"{made}.crt").read_bytes())
    return made


def need(program: str) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")


@asynccontextmanager
async def served_page(certificate: Path, hosts: list[str]) -> AsyncGenerator[Door]:
    """Serve a page by TLS, and a proxy whose network leads there."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)

    async def answer(stream: ByteStream) -> None:
        async with stream:
            head = b""
            while b"\r\n\r\n" not in head:
                head += await stream.receive()
            length = f"Content-Length: {len(BODY)}\r\nConnection: close\r\n\r\n"
            await stream.send(f"HTTP/1.1 200 OK\r\n{length}{BODY}".encode())

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port: int = listener.extra(anyio.abc.SocketAttribute.local_port)
    names = {HOST: [ADDRESS], "other.example.org": [ADDRESS]}
    network = FakeNetwork(names, {(ADDRESS, 443): port})
    async with TLSListener(listener, context, standard_compatible=False) as pages:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(pages.serve, answer)
            async with open_proxy(hosts, network) as door:
                yield door
            tasks.cancel_scope.cancel()


async def said_by(
    words: list[str], door: Door, certificate: Path, **more: str
) -> subprocess.CompletedProcess[str]:
    """Return what the program *words* says that was told of the proxy of *door*."""
    trusted = dict.fromkeys(
        ("SSL_CERT_FILE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "GIT_SSL_CAINFO"),
        f"{certificate}.crt",
    )
    env = {"PATH": os.environ["PATH"], **proxy_environment(door.port), **trusted, **more}
    return await anyio.to_thread.run_sync(partial(_run, words, env))


def _run(words: list[str], env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words, env=dict(env), capture_output=True, text=True, timeout=PATIENCE_SECONDS
    )


@pytest.mark.parametrize("client", ["curl", "python", "node"])
async def test_a_granted_host_is_reached_and_another_is_not(client: str, certificate: Path) -> None:
    need(CLIENTS[client][0])
    async with served_page(certificate, [HOST]) as door:
        reached = await said_by([*CLIENTS[client], f"https://{HOST}/"], door, certificate)
        granted = await door.verdict()
        kept_out = await said_by(
            [*CLIENTS[client], "https://other.example.org/"], door, certificate
        )
        refused = await door.verdict()

    assert (reached.returncode, reached.stdout.strip()) == (0, BODY), reached.stderr
    assert granted.reason in (Ending.CLOSED, Ending.RESET)
    assert granted.received > len(BODY)
    assert kept_out.returncode != 0
    assert "403" in kept_out.stderr
    assert refused.reason is Why.HOST


async def test_git_is_kept_to_what_was_granted(certificate: Path) -> None:
    need("git")
    async with served_page(certificate, [HOST]) as door:
        done = await said_by(
            [*CLIENTS["git"], "https://other.example.org/x.git"], door, certificate
        )

        assert "403" in done.stderr
        assert (await door.verdict()).reason is Why.HOST


async def test_a_front_before_another_host_is_not_passed(certificate: Path) -> None:
    """The tunnel is for one host, and its TLS for another that the same server answers for."""
    need("curl")
    async with served_page(certificate, [HOST]) as door:
        tunnel_to = f"other.example.org:443:{HOST}:443"
        words = [*CURL, "--connect-to", tunnel_to, "https://other.example.org/"]
        done = await said_by(words, door, certificate)
        verdict = await door.verdict()

    assert done.returncode == 35, done.stderr
    assert "unrecognized" in done.stderr
    assert verdict.reason is Why.SNI
    assert verdict.sent == 0


async def test_curl_gets_a_page_without_tls_where_that_was_granted() -> None:
    need("curl")
    said, head = list[str](), b""
    async with open_place() as place:
        network = leading_to(place, HOST, port=80)
        async with (
            open_proxy([f"http://{HOST}"], network) as door,
            anyio.create_task_group() as run,
        ):

            async def ask() -> None:
                env = {"PATH": os.environ["PATH"], **proxy_environment(door.port)}
                words = [*CURL, "--data", "a=b", f"http://{HOST}/page?x"]
                said.append((await anyio.to_thread.run_sync(partial(_run, words, env))).stdout)

            run.start_soon(ask)
            async with place.visitor() as server:
                while not head.endswith(b"\r\n\r\na=b"):
                    head += await server.hear(1)
                await server.say(f"HTTP/1.1 200 OK\r\n\r\n{BODY}".encode())
                await server.end()

    assert said == [BODY]
    assert head.startswith(b"POST /page?x HTTP/1.1\r\nHost: api.example.org\r\n")
    assert b"proxy" not in head.lower()


async def test_curl_says_why_plain_http_is_not_passed(certificate: Path) -> None:
    need("curl")
    async with served_page(certificate, [HOST]) as door:
        done = await said_by([*CURL, f"http://{HOST}/"], door, certificate)

        assert done.stdout == f"capsule: {HOST} was not granted without TLS (plain)\n"
        assert (await door.verdict()).reason is Why.PLAIN
