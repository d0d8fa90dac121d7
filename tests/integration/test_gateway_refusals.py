"""What the gateway refuses of a client, and how: always an answer or the end, and soon."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import ExitStack
from socket import socket

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from capsule_runtime.host.gateway import Bounds
from support.doors import PATIENCE_SECONDS, Visitor, open_files
from support.gateway import (
    AUTHORITY,
    LAST,
    open_gate,
    parsed,
    post,
    status,
)

HOST = f"Host: {AUTHORITY}\r\n"


def head(lines: str, first: str = "POST /v1 HTTP/1.1") -> bytes:
    """Return a head that begins with *first* and has *lines*."""
    return f"{first}\r\n{lines}\r\n".encode("latin-1")


@pytest.mark.parametrize(
    ("said", "code"),
    [
        (head(HOST, "POST http://api.test/v1 HTTP/1.1"), 400),
        (head(HOST, "CONNECT api.test:443 HTTP/1.1"), 405),
        (head(HOST, "OPTIONS * HTTP/1.1"), 400),
        (head(HOST, "GET /v1 HTTP/1.0"), 505),
        (head(HOST, "GET /v1 HTTP/2.0"), 505),
        (head(HOST, "GET  /v1 HTTP/1.1"), 400),
        (head(HOST, "GET /v1#x HTTP/1.1"), 400),
        (head(HOST, "GET /v\xe4 HTTP/1.1"), 400),
        (head(""), 400),
        (head("Host: api.test\r\n"), 421),
        (head(HOST + HOST), 400),
        (head(f"{HOST}Content-Length: 1\r\nTransfer-Encoding: chunked\r\n") + b"0\r\n\r\n", 400),
        (head(f"{HOST}Content-Length: 1\r\nContent-Length: 1\r\n") + b"x", 400),
        (head(f"{HOST}Content-Length: 1, 1\r\n") + b"x", 400),
        (head(f"{HOST}Content-Length: +1\r\n") + b"x", 400),
        (head(f"{HOST}Content-Length: -1\r\n") + b"x", 400),
        (head(f"{HOST}Content-Length: 0x1\r\n") + b"x", 400),
        (head(f"{HOST}Transfer-Encoding: gzip, chunked\r\n"), 501),
        (head(f"{HOST}Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"), 400),
        (head(f"{HOST}Transfer-Encoding : chunked\r\n"), 400),
        (head(f"{HOST}X: a\r\n b\r\n"), 400),
        (head(f" X: a\r\n{HOST}"), 400),
        (head(f"{HOST}X: a\nY: b\r\n"), 400),
        (head(f"{HOST}X: a\rY: b\r\n"), 400),
        (head(f"{HOST}X: a\x00b\r\n"), 400),
        (head(f"{HOST}X\xe4: a\r\n"), 400),
        (head(f"{HOST}X(: a\r\n"), 400),
        (head(f"{HOST}: a\r\n"), 400),
        (head(f"{HOST}X\r\n"), 400),
        (head(HOST + "X: a\r\n" * 100), 431),
        (head(f"{HOST}X: {'a' * 16384}\r\n"), 431),
        (head(f"{HOST}Upgrade: websocket\r\nConnection: upgrade\r\n"), 501),
        (head(f"{HOST}Content-Length: 1\r\n", "GET /v1 HTTP/1.1") + b"x", 400),
        (head(f"{HOST}Transfer-Encoding: chunked\r\n", "HEAD /v1 HTTP/1.1"), 400),
        (head(f"{HOST}Expect: 200-ok\r\n"), 417),
        (head(f"{HOST}Transfer-Encoding: chunked\r\n") + b"0\r\nX-Trailer: 1\r\n\r\n", 400),
        (head(f"{HOST}Transfer-Encoding: chunked\r\n") + b"zz\r\n", 400),
        (head(f"{HOST}Transfer-Encoding: chunked\r\n") + b"1\r\nabc\r\n", 400),
        (head(f"{HOST}Transfer-Encoding: chunked\r\n") + b"1\r\na\r\n" * 9999, 400),
        (head(f"{HOST}Content-Length: {2**25 + 1}\r\n"), 413),
        (head(f"{HOST}Content-Length: {10**17}\r\nExpect: 100-continue\r\n"), 413),
    ],
)
async def test_what_could_be_read_in_two_ways_is_refused(said: bytes, code: int) -> None:
    async with open_gate() as gate:
        answer = await gate.asked(said)

    assert status(answer) == code
    assert parsed(answer)[1]["connection"] == "close"
    assert parsed(answer)[3]
    assert gate.policy.heads == []


async def test_a_refusal_is_no_end_for_others() -> None:
    async with open_gate() as gate:
        await gate.asked(head("nonsense\r\n"))

        assert status(await gate.asked(post(head=LAST))) == 200


async def test_a_body_that_grows_too_large_is_refused_before_its_end() -> None:
    framing = head(f"{HOST}Transfer-Encoding: chunked\r\n")
    async with open_gate(bounds=Bounds(body_bytes=100_000)) as gate:
        async with gate.visitor(framing) as client:
            await client.say((b"10000\r\n" + b"x" * 65536 + b"\r\n") * 2)

            assert status(await client.hear_all()) == 413


async def test_all_bodies_of_a_run_share_a_room_that_is_given_back() -> None:
    bounds = Bounds(body_bytes=60_000, bodies_bytes=100_000)
    async with open_gate(bounds=bounds) as gate:
        async with gate.visitor(post(b"x" * 60_000)[:-1]) as first:
            answer = b"HTTP/1.1 200"
            with anyio.fail_after(PATIENCE_SECONDS):
                while status(answer) == 200:  # until the first one's body has been read
                    answer = await gate.asked(post(b"x" * 60_000, LAST))
            assert status(answer) == 503
            assert parsed(answer)[1]["retry-after"] == "1"
            await first.say(b"x")
            assert await first.hear(12) == b"HTTP/1.1 200"

            assert status(await gate.asked(post(b"x" * 30_000, LAST))) == 200


async def test_who_is_slow_with_a_head_is_told_so() -> None:
    async with open_gate(bounds=Bounds(head_seconds=0.05)) as gate:
        assert status(await gate.asked(b"POST /v1 HT")) == 408


async def test_who_drips_a_head_gets_no_more_time_for_it() -> None:
    bounds = Bounds(head_seconds=0.05, head_bytes=2**20)
    async with (
        open_gate(bounds=bounds) as gate,
        gate.visitor(b"POST /v1 HTTP/1.1\r\nX: ") as client,
    ):

        async def drip() -> None:
            while True:
                await client.say(b"x")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(drip)

            assert await client.hear(12) == b"HTTP/1.1 408"
            tasks.cancel_scope.cancel()


async def test_who_is_slow_with_a_body_is_told_so() -> None:
    async with open_gate(bounds=Bounds(body_seconds=0.05)) as gate:
        assert status(await gate.asked(post(b"xx")[:-1])) == 408


async def test_who_says_nothing_is_let_go() -> None:
    async with open_gate(bounds=Bounds(idle_seconds=0.05)) as gate:
        assert await gate.asked(b"") == b""


async def test_who_says_empty_lines_only_is_refused() -> None:
    async with open_gate() as gate:
        assert status(await gate.asked(b"\r\n\r\n\r\n")) == 400


async def test_an_empty_line_before_a_request_is_ignored() -> None:
    async with open_gate() as gate:
        assert status(await gate.asked(b"\r\n" + post(head=LAST))) == 200


@pytest.mark.parametrize("said", [post()[:20], post(b"xx")[:-1]])
async def test_who_leaves_within_a_request_is_forgotten(said: bytes) -> None:
    async with open_gate() as gate:
        async with gate.visitor(said) as client:
            await client.end()

            assert await client.hear_all() == b""
        assert gate.policy.heads == []


# What nobody thought of.

HASTE = Bounds(head_seconds=0.05, body_seconds=0.05, idle_seconds=0.05)
WHOLE = [
    post(b"body"),
    head(f"{HOST}Transfer-Encoding: chunked\r\n") + b"4\r\nbody\r\n0\r\n\r\n",
    post(b"body", "Expect: 100-continue\r\n"),
    head(HOST, "GET /v1/models?key=x HTTP/1.1"),
    head(HOST, "HEAD / HTTP/1.1"),
]
ODD = [
    b"\r",
    b"\n",
    b"\r\n",
    b"\0",
    b" ",
    b"\t",
    b":",
    b",",
    b"\xff",
    b"0",
    b"chunked",
    b"\r\n\r\n",
]


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """Return requests into which something was put, or of which something is missing."""
    said = b"".join(draw(st.lists(st.sampled_from(WHOLE), min_size=1, max_size=3)))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(said)))
        to = at + draw(st.integers(0, 5))
        said = said[:at] + draw(st.sampled_from(ODD) | st.binary(max_size=5)) + said[to:]
    return said


async def _heard_of(said: bytes, port: int) -> bytes:
    async with await anyio.connect_tcp("127.0.0.1", port) as stream:
        visitor = Visitor(stream)
        try:
            await visitor.say(said)
            return await visitor.hear_all()
        except anyio.BrokenResourceError:
            return b""  # cut: it said more than the gateway wanted to hear


async def _fuzz(all_said: list[bytes]) -> None:
    answers: list[bytes] = []

    async def ask(said: bytes) -> None:
        answers.append(await _heard_of(said, gate.port))

    async with open_gate(bounds=HASTE) as gate:
        with anyio.fail_after(PATIENCE_SECONDS):
            async with anyio.create_task_group() as tasks:
                for said in all_said:
                    tasks.start_soon(ask, said)
        assert status(await gate.asked(post(head=LAST))) == 200

        assert [len(tape.endings) for tape in gate.policy.tapes] == [1] * len(gate.policy.tapes)
    assert len(answers) == len(all_said)
    assert all(answer.startswith(b"HTTP/1.1 ") for answer in answers if answer)
    assert all(len(heard.values("authorization")) == 1 for heard in gate.upstream.heard)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(all_said=st.lists(requests() | st.binary(max_size=400), min_size=8, max_size=8))
def test_whatever_is_said_is_answered_or_cut_and_soon(backend: str, all_said: list[bytes]) -> None:
    before = open_files()

    anyio.run(_fuzz, all_said, backend=backend)

    assert open_files() <= before


@pytest.fixture
def many_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 12_000:
        pytest.skip("this machine does not let a process have 12 000 descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 12_000), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_ten_thousand_who_say_nothing_keep_nobody_out(many_files: None) -> None:
    before = open_files()
    async with open_gate() as gate:
        with ExitStack() as crowd:
            for _ in range(10_000):
                one = crowd.enter_context(socket())
                one.setblocking(False)
                one.connect_ex(("127.0.0.1", gate.port))

            assert status(await gate.asked(post(head=LAST))) == 200
            assert open_files() <= before + 10_000 + Bounds().connections + 16
