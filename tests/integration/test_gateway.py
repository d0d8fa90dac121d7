"""The gateway's bytes, with real sockets: what arrives upstream, and what comes back."""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path
from socket import create_server, socket

import anyio
import anyio.lowlevel
import pytest

from capsule_runtime.core.origins import Origin
from capsule_runtime.core.relaying import Answer, Credential, Ending
from capsule_runtime.host.gateway import Bounds
from capsule_runtime.host.gateway.upstreams import Reach
from support.doors import PATIENCE_SECONDS, open_files, open_place
from support.gateway import (
    AUTHORITY,
    CREDENTIAL,
    EVENT,
    KEY,
    LAST,
    Heard,
    Script,
    Tape,
    certificates,
    hello,
    open_gate,
    parsed,
    post,
    status,
    stream_of,
)

# What passes.


async def test_a_call_arrives_as_it_was_said_and_its_answer_comes_back() -> None:
    async with open_gate() as gate:
        answer = await gate.asked(
            post(b'{"a":1}', LAST + "X-Stainless-Lang: 7\r\n", "/v1/x?beta=true")
        )

    assert parsed(answer)[0] == 200
    assert parsed(answer)[2:] == (b"hello", True)
    [heard] = gate.upstream.heard
    assert (heard.method, heard.target, heard.body) == ("POST", "/base/v1/x?beta=true", b'{"a":1}')
    assert heard.values("host") == [gate.policy.origin.authority]
    assert heard.values("x-stainless-lang") == ["7"]
    assert heard.values("connection") == []
    assert gate.tape.endings == [Ending.COMPLETE]
    assert gate.tape.data == b"hello"


async def test_a_body_in_chunks_arrives_with_its_length() -> None:
    framing = f"Host: {AUTHORITY}\r\nTransfer-Encoding: chunked\r\n{LAST}"
    said = f"POST /v1 HTTP/1.1\r\n{framing}\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n".encode()
    async with open_gate() as gate:
        assert status(await gate.asked(said)) == 200

        [heard] = gate.upstream.heard
        assert heard.body == b"abcde"
        assert heard.values("content-length") == ["5"]
        assert heard.values("transfer-encoding") == []


async def test_each_piece_of_a_stream_comes_when_it_is_said() -> None:
    go_on = [anyio.Event() for _ in range(3)]

    async def script(heard: Heard) -> None:
        await heard.begin()
        for event in go_on:
            await heard.chunk(EVENT)
            await event.wait()
        await heard.chunk(b"")

    async with open_gate(script) as gate, gate.visitor(post(head=LAST)) as client:
        said = b""
        for event in go_on:
            before = said.count(EVENT)
            while said.count(EVENT) == before:
                said += await client.hear(1)
            event.set()
        said += await client.hear_all()

    assert parsed(said)[2:] == (EVENT * 3, True)


@pytest.mark.parametrize(
    ("method", "state"),
    [("HEAD", "200 OK"), ("GET", "204 No Content"), ("GET", "304 Not Modified")],
)
async def test_what_has_no_body_has_none_whatever_a_meter_returns(method: str, state: str) -> None:
    class Talkative(Tape):
        def chunk(self, data: bytes) -> bytes:
            return b"more"

    async def script(heard: Heard) -> None:
        await heard.say_whole(b"", status=state)

    async with open_gate(script) as gate:
        gate.policy.new_tape = Talkative
        answer = await gate.asked(
            f"{method} /v1 HTTP/1.1\r\nHost: {AUTHORITY}\r\n{LAST}\r\n".encode()
        )

    assert answer.endswith(b"\r\n\r\n")
    assert b"more" not in answer


async def test_connections_are_kept_on_both_sides() -> None:
    async with open_gate() as gate, gate.visitor() as client:
        for _ in range(3):
            await client.say(post())
            said = b""
            while b"0\r\n\r\n" not in said:
                said += await client.hear(1)
            assert parsed(said)[2:] == (b"hello", True)

    assert len(gate.upstream.heard) == 3
    assert gate.upstream.connections == 1


async def test_requests_that_come_at_once_are_answered_one_after_the_other() -> None:
    async with open_gate() as gate:
        answer = await gate.asked(post(b"one") + post(b"two") + post(b"three", LAST))

    assert answer.count(b"HTTP/1.1 200") == 3
    assert [heard.body for heard in gate.upstream.heard] == [b"one", b"two", b"three"]


async def test_who_waits_for_a_sign_before_its_body_gets_one() -> None:
    said = post(b"body", LAST + "Expect: 100-continue\r\n")
    async with open_gate() as gate, gate.visitor(said[:-4]) as client:
        sign = b"HTTP/1.1 100 \r\n\r\n"
        assert await client.hear(len(sign)) == sign
        await client.say(b"body")
        answer = await client.hear_all()

    assert parsed(answer)[2] == b"hello"
    assert gate.upstream.heard[0].values("expect") == []


async def test_what_the_policy_answers_is_heard_and_nothing_is_forwarded() -> None:
    async with open_gate() as gate:
        gate.policy.answer = Answer(402, ((b"content-type", b"text/plain"),), b"no")
        answer = await gate.asked(post() + post(head=LAST))

    assert answer.count(b"HTTP/1.1 402 Payment Required") == 2
    assert gate.upstream.heard == []


async def test_how_long_to_wait_and_what_is_left_is_passed_on() -> None:
    limits = "Retry-After: 7\r\nanthropic-ratelimit-tokens-remaining: 3\r\nX-RateLimit-Reset: 9\r\n"

    async def script(heard: Heard) -> None:
        await heard.say_whole(b"{}", limits, "429 Too Many Requests")

    async with open_gate(script) as gate:
        code, headers, _, _ = parsed(await gate.asked(post(head=LAST)))

    assert code == 429
    assert headers["retry-after"] == "7"
    assert headers["anthropic-ratelimit-tokens-remaining"] == "3"
    assert headers["x-ratelimit-reset"] == "9"


async def test_a_redirect_is_neither_followed_nor_does_it_say_where_to() -> None:
    async def script(heard: Heard) -> None:
        await heard.say_whole(b"", "Location: https://evil.test/\r\n", "307 Temporary Redirect")

    async with open_gate(script) as gate:
        answer = await gate.asked(post(head=LAST))

    assert status(answer) == 307
    assert b"evil" not in answer
    assert len(gate.upstream.heard) == 1


async def test_what_only_the_next_hop_is_to_hear_stays_there() -> None:
    async def script(heard: Heard) -> None:
        odd = "Connection: x-hop\r\nX-Hop: 1\r\nKeep-Alive: 5\r\nSet-Cookie: a=b\r\nAlt-Svc: h3\r\n"
        await heard.say_whole(b"", odd)

    hop = "Connection: close, X-Mine\r\nX-Mine: 1\r\nTE: trailers\r\nAccept-Encoding: br\r\n"
    async with open_gate(script) as gate:
        _, headers, _, _ = parsed(await gate.asked(post(head=hop)))

    assert not {"x-hop", "keep-alive", "set-cookie", "alt-svc"} & set(headers)
    [heard] = gate.upstream.heard
    assert heard.values("x-mine") == heard.values("te") == []
    assert heard.values("accept-encoding") == ["identity"]


async def test_a_meter_may_pass_other_bytes_than_it_got() -> None:
    class Swallowing(Tape):
        def chunk(self, data: bytes) -> bytes:
            super().chunk(data)
            return b"" if data else b"at last"

    async with open_gate() as gate:
        gate.policy.new_tape = Swallowing
        answer = await gate.asked(post(head=LAST))

    assert parsed(answer)[2:] == (b"at last", True)


async def test_the_client_hears_of_the_end_once_the_meter_has_ended() -> None:
    may_end = anyio.Event()

    class Slow(Tape):
        async def end(self, ending: Ending) -> None:
            await may_end.wait()
            await super().end(ending)

    async with open_gate() as gate:
        gate.policy.new_tape = Slow
        async with gate.visitor(post(head=LAST)) as client:
            said = b""
            while b"hello\r\n" not in said:
                said += await client.hear(1)
            with anyio.move_on_after(0.05) as nothing_came:
                await client.stream.receive()
            may_end.set()
            rest = await client.hear_all()

    assert nothing_came.cancelled_caught
    assert rest == b"0\r\n\r\n"


# Keys.


async def test_of_all_keys_only_the_real_one_goes_out() -> None:
    marker = (
        "Authorization: Bearer marker\r\nX-Api-Key: marker\r\nx-goog-api-key: marker\r\n"
        "Api-Key: marker\r\nCookie: marker\r\nProxy-Authorization: marker\r\n"
    )
    target = "/v1?key=marker&alt=sse&%6Bey=marker&KEY=marker"
    async with open_gate() as gate:
        gate.policy.credential = Credential(b"x-goog-api-key", KEY.encode())
        await gate.asked(post(head=marker + LAST, target=target))

    [heard] = gate.upstream.heard
    assert heard.target == "/base/v1?alt=sse"
    assert [pair for pair in heard.headers if b"marker" in pair[1]] == []
    assert heard.values("x-goog-api-key") == [KEY]


async def test_a_policy_cannot_set_a_second_key() -> None:
    async with open_gate() as gate:
        gate.policy.headers = ((b"x-api-key", b"another"), (b"anthropic-version", b"2"))
        await gate.asked(post(head="anthropic-version: 1\r\n" + LAST))

    [heard] = gate.upstream.heard
    assert heard.values("x-api-key") == []
    assert heard.values("anthropic-version") == ["2"]
    assert heard.values("authorization") == [f"Bearer {KEY}"]


async def test_an_upstream_that_repeats_the_key_does_not_show_it_to_the_run() -> None:
    async def script(heard: Heard) -> None:
        await heard.begin(f"X-Echo: {KEY}\r\n", "401 Unauthorized")
        for at in range(0, len(KEY), 5):
            await heard.chunk(KEY[at : at + 5].encode())
        await heard.chunk(b" is wrong")
        await heard.chunk(b"")

    async with open_gate(script) as gate:
        answer = await gate.asked(post(head=LAST))

    assert KEY.encode() not in answer
    assert parsed(answer)[2] == b"*" * len(KEY) + b" is wrong"
    assert KEY.encode() not in gate.tape.data


async def test_a_key_is_in_no_log_and_no_error(caplog: pytest.LogCaptureFixture) -> None:
    async def cut(heard: Heard) -> None:
        await heard.stream.aclose()

    caplog.set_level(logging.DEBUG)
    async with open_gate(cut) as gate:
        answer = await gate.asked(post(head=LAST))

    assert status(answer) == 502
    assert KEY not in caplog.text + answer.decode() + repr(CREDENTIAL)
    assert caplog.text


# TLS.


async def test_https_is_spoken_where_the_certificate_is_right(tmp_path: Path) -> None:
    server, client = certificates(tmp_path)
    script = partial(stream_of, count=50)
    async with open_gate(script, server_tls=server, client_tls=client) as gate:
        answer = await gate.asked(post(b"x" * 300_000) + post(head=LAST))

    assert answer.count(EVENT) == 100
    assert len(gate.upstream.heard[0].body) == 300_000
    assert gate.upstream.connections == 1


async def test_a_key_is_not_sent_where_the_certificate_is_wrong(tmp_path: Path) -> None:
    server, _ = certificates(tmp_path)
    async with open_gate(server_tls=server) as gate:
        answer = await gate.asked(post(head=LAST))

    assert status(answer) == 502
    assert b"certificate" in answer
    assert gate.upstream.heard == []
    assert gate.tape.endings == [Ending.UNSENT]


async def test_a_certificate_for_another_name_is_wrong(tmp_path: Path) -> None:
    server, client = certificates(tmp_path)
    async with open_gate(server_tls=server, client_tls=client) as gate:
        right = gate.policy.origin
        gate.policy.origin = Origin("https", "127.0.0.1", right.port)
        assert status(await gate.asked(post(head=LAST))) == 502

        assert gate.upstream.heard == []


async def test_an_answer_is_cut_where_tls_ends_without_its_farewell(tmp_path: Path) -> None:
    async def script(heard: Heard) -> None:
        await heard.say(b"HTTP/1.1 200 OK\r\n\r\nhello")
        await heard.stream.aclose()

    server, client = certificates(tmp_path)
    async with open_gate(script, server_tls=server, client_tls=client) as gate:
        answer = await gate.asked(post(head=LAST))

    assert parsed(answer)[2:] == (b"hello", False)
    assert gate.tape.endings == [Ending.CUT]


# Back-pressure.


async def test_a_slow_client_holds_the_upstream_back() -> None:
    sent = 0
    piece = b"x" * 65536

    async def script(heard: Heard) -> None:
        nonlocal sent
        await heard.begin()
        with anyio.move_on_after(0.3):
            while True:
                await heard.chunk(piece)
                sent += len(piece)
        stalled.set()
        await heard.is_left()

    stalled = anyio.Event()
    async with open_gate(script) as gate, gate.visitor(post()) as client:
        with anyio.fail_after(PATIENCE_SECONDS):
            await stalled.wait()
        held = len(gate.tape.data)
        await client.cut()

        assert await gate.tape.ending() is Ending.CUT
    # What the kernel's buffers of two connections hold, and no more.
    assert held <= sent < 32 * 1024 * 1024


# How it ends otherwise.


async def test_a_client_that_goes_away_takes_the_call_with_it() -> None:
    left = anyio.Event()

    async def silent(heard: Heard) -> None:
        await heard.begin()
        await heard.chunk(EVENT)
        await heard.is_left()
        left.set()

    async with open_gate(silent) as gate:
        async with gate.visitor(post()) as client:
            said = b""
            while EVENT not in said:
                said += await client.hear(1)
        assert await gate.tape.ending() is Ending.CUT
        with anyio.fail_after(PATIENCE_SECONDS):
            await left.wait()


async def test_a_client_that_goes_before_an_answer_began_takes_the_call_with_it() -> None:
    asked, left = anyio.Event(), anyio.Event()

    async def silent(heard: Heard) -> None:
        asked.set()
        await heard.is_left()
        left.set()

    async with open_gate(silent) as gate:
        async with gate.visitor(post()), anyio.create_task_group():
            await asked.wait()
        with anyio.fail_after(PATIENCE_SECONDS):
            await left.wait()
        assert await gate.tape.ending() is Ending.CUT


@pytest.mark.parametrize("framing", ["Transfer-Encoding: chunked", "Content-Length: 9"])
async def test_an_answer_that_is_cut_has_no_end(framing: str) -> None:
    async def script(heard: Heard) -> None:
        data = b"5\r\nhello\r\n" if "chunked" in framing else b"hello"
        await heard.say(f"HTTP/1.1 200 OK\r\n{framing}\r\n\r\n".encode() + data)
        await heard.stream.aclose()

    async with open_gate(script) as gate:
        answer = await gate.asked(post())

    assert parsed(answer)[2:] == (b"hello", False)
    assert gate.tape.endings == [Ending.CUT]


async def test_an_answer_whose_end_is_the_connection_s_is_whole() -> None:
    async def script(heard: Heard) -> None:
        await heard.say(b"HTTP/1.0 200 OK\r\n\r\nhello")
        await heard.stream.aclose()

    async with open_gate(script) as gate:
        answer = await gate.asked(post(head=LAST))

    assert parsed(answer)[2:] == (b"hello", True)
    assert gate.tape.endings == [Ending.COMPLETE]


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"garbage\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 200_000,
    ],
)
async def test_an_upstream_that_speaks_no_http_is_a_bad_gateway(said: bytes) -> None:
    async def script(heard: Heard) -> None:
        await heard.say(said)
        await heard.stream.aclose()

    async with open_gate(script) as gate:
        assert status(await gate.asked(post(head=LAST))) == 502

        assert await gate.tape.ending() is Ending.CUT


async def test_an_upstream_that_is_not_there_is_a_bad_gateway_and_the_client_is_kept() -> None:
    async with open_gate() as gate:
        async with open_gate() as other:
            gone = other.policy.origin
        gate.policy.origin = gone
        answer = await gate.asked(post() + post(head=LAST))

    assert answer.count(b"HTTP/1.1 502 Bad Gateway") == 2
    assert [tape.endings for tape in gate.policy.tapes] == [[Ending.UNSENT]] * 2


async def silence(heard: Heard) -> None:
    """Say nothing."""
    await heard.is_left()


async def silence_within(heard: Heard) -> None:
    """Begin, and say nothing more."""
    await heard.begin()
    await heard.chunk(EVENT)
    await heard.is_left()


async def test_an_upstream_that_cannot_be_dialled_in_time_is_given_up() -> None:
    async with open_gate(reach=Reach(connect_seconds=0.05)) as gate:
        with socket() as full, socket() as first, socket() as second:
            full.bind(("127.0.0.1", 0))
            full.listen(0)
            for caller in (first, second):
                caller.setblocking(False)
                caller.connect_ex(full.getsockname())
            gate.policy.origin = Origin("http", *full.getsockname())
            answer = await gate.asked(post(head=LAST))

    assert status(answer) == 504
    assert b"connect_timeout" in answer
    assert gate.tape.endings == [Ending.UNSENT]


async def test_an_upstream_that_does_not_take_the_body_is_given_up() -> None:
    async with open_gate(reach=Reach(send_seconds=0.05)) as gate:
        with create_server(("127.0.0.1", 0)) as deaf:
            gate.policy.origin = Origin("http", *deaf.getsockname())
            answer = await gate.asked(post(b"x" * 16_000_000, LAST))

    assert status(answer) == 504
    assert gate.tape.endings == [Ending.CUT]


async def test_an_upstream_may_answer_before_it_has_taken_the_body() -> None:
    async with open_gate() as gate, open_place() as place:
        gate.policy.origin = Origin("http", "127.0.0.1", place.port)
        async with gate.visitor(post(b"x" * 16_000_000, LAST)) as client, place.visitor() as server:
            await server.hear(1000)
            await server.say(b"HTTP/1.1 413 Too Much\r\nContent-Length: 0\r\n\r\n")
            await server.end()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(server.hear_all)

                assert status(await client.hear_all()) == 413


async def test_an_upstream_that_does_not_begin_is_given_up() -> None:
    async with open_gate(silence, Bounds(first_byte_seconds=0.05)) as gate:
        answer = await gate.asked(post(head=LAST))

    assert status(answer) == 504
    assert b"first_byte" in answer
    assert gate.tape.endings == [Ending.CUT]


async def test_an_upstream_that_falls_silent_is_given_up() -> None:
    async with open_gate(silence_within, Bounds(silent_seconds=0.05)) as gate:
        answer = await gate.asked(post(head=LAST))

    assert parsed(answer)[2:] == (EVENT, False)
    assert gate.tape.endings == [Ending.CUT]


@pytest.mark.parametrize("script", [silence, silence_within])
async def test_a_call_takes_no_longer_than_it_may(script: Script) -> None:
    async with open_gate(script, Bounds(total_seconds=0.1)) as gate:
        answer = await gate.asked(post(head=LAST))

    assert parsed(answer)[3] is (script is silence)
    assert gate.tape.endings == [Ending.CUT]


async def test_who_finds_all_connections_taken_is_told_to_come_again() -> None:
    reach = Reach(connections=1, wait_seconds=0.05)
    async with open_gate(silence_within, reach=reach) as gate, gate.visitor(post()) as first:
        assert await first.hear(1)
        code, headers, _, _ = parsed(await gate.asked(post(head=LAST)))

    assert code == 503
    assert headers["retry-after"] == "1"


async def test_a_client_that_takes_nothing_is_given_up() -> None:
    async def flood(heard: Heard) -> None:
        await heard.begin()
        while True:
            await heard.chunk(b"x" * 65536)

    async with open_gate(flood, Bounds(client_seconds=0.1)) as gate, gate.visitor(post()):
        while not gate.policy.tapes:
            await anyio.lowlevel.checkpoint()
        assert await gate.tape.ending() is Ending.CUT


async def test_the_end_of_a_supervisor_cuts_all_calls_and_leaves_nothing() -> None:
    before, calls = open_files(), 8

    async def hear_of_the_end() -> None:
        async with gate.visitor(post()) as client:
            assert not parsed(await client.hear_all())[3]

    async with open_gate(silence_within) as gate:
        async with anyio.create_task_group() as tasks:
            for _ in range(calls):
                tasks.start_soon(hear_of_the_end)
            with anyio.fail_after(PATIENCE_SECONDS):
                while len(gate.upstream.heard) < calls:
                    await anyio.lowlevel.checkpoint()
            await gate.close()

    assert [tape.endings for tape in gate.policy.tapes] == [[Ending.CUT]] * calls
    assert open_files() <= before


@pytest.mark.parametrize("secured", [False, True], ids=["plain", "tls"])
async def test_a_call_that_is_cut_at_any_moment_ends_its_meter_once(
    secured: bool, tmp_path: Path
) -> None:
    """The gateway is closed after so many steps of the loop as a call can take."""
    server, client = certificates(tmp_path) if secured else (None, None)
    before = open_files()
    endings: list[Ending] = []
    for steps in range(0, 120, 3):
        async with open_gate(stream_of, server_tls=server, client_tls=client) as gate:
            async with gate.visitor(post()):
                for _ in range(steps):
                    await anyio.lowlevel.checkpoint()
                await gate.close()

                assert [len(tape.endings) for tape in gate.policy.tapes] in ([], [1])
                endings += [ending for tape in gate.policy.tapes for ending in tape.endings]

    assert set(endings) == {Ending.CUT, Ending.COMPLETE}
    assert open_files() <= before


async def test_who_asks_for_nothing_makes_room_for_others() -> None:
    async with open_gate(hello, Bounds(connections=2)) as gate:
        async with gate.visitor() as one, gate.visitor() as two:
            assert status(await gate.asked(post(head=LAST))) == 200
            assert await one.hear_all() == b""
            await two.say(post(head=LAST))

            assert status(await two.hear_all()) == 200
