"""Plain HTTP through the proxy of a run: one request, for the host that was granted."""

from __future__ import annotations

from msgspec.structs import replace

from capsule_runtime.core.destinations import Destination
from capsule_runtime.core.verdicts import Ending, Why
from capsule_runtime.testing import FakeNetwork
from support.doors import SHORT, leading_to, open_place, open_proxy

HOST = "example.org"
PLAIN = f"http://{HOST}"


async def test_the_server_gets_the_request_for_the_granted_host_and_the_client_the_answer() -> None:
    async with open_place() as place:
        async with open_proxy([PLAIN], leading_to(place, HOST, port=80)) as door:
            said = f"POST {PLAIN}/a?b HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: 4\r\n\r\nab"
            async with door.visitor(said.encode()) as client, place.visitor() as server:
                head = f"POST /a?b HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: 4\r\n"
                rest = "Connection: close\r\n\r\nab"
                assert await server.hear(len(head + rest)) == (head + rest).encode()
                await client.say(b"cd")
                assert await server.hear(2) == b"cd"
                await server.say(b"HTTP/1.1 200 OK\r\n\r\nhello")
                await server.end()
                assert await client.hear_all() == b"HTTP/1.1 200 OK\r\n\r\nhello"

            verdict = await door.verdict()
    assert verdict.reason is Ending.CLOSED
    assert verdict.target == Destination(HOST, 80, plain=True)
    assert (verdict.sent, verdict.received) == (len(head + rest) + 2, 24)


async def test_a_second_request_on_the_same_connection_reaches_nobody() -> None:
    async with open_place() as place:
        async with open_proxy([PLAIN], leading_to(place, HOST, port=80)) as door:
            first = f"GET {PLAIN}/ HTTP/1.1\r\nHost: {HOST}\r\n\r\n"
            second = "GET http://other.org/ HTTP/1.1\r\nHost: other.org\r\n\r\n"
            said = (first + second).encode()
            async with door.visitor(said) as client, place.visitor() as server:
                await client.say(second.encode())
                heard = await server.hear(
                    len(f"GET / HTTP/1.1\r\nHost: {HOST}\r\nConnection: close")
                )
                await server.say(b"HTTP/1.1 204 No Content\r\n\r\n")
                await server.end()
                assert await client.hear(24) == b"HTTP/1.1 204 No Content\r"
                heard += await server.hear_all()

    assert heard == f"GET / HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n".encode()


async def test_a_body_that_is_longer_than_it_says_ends_where_it_says() -> None:
    async with open_place() as place:
        async with open_proxy([PLAIN], leading_to(place, HOST, port=80)) as door:
            said = f"PUT {PLAIN}/ HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: 2\r\n\r\n"
            async with door.visitor(said.encode()) as client, place.visitor() as server:
                await client.say(b"abGET / HTTP/1.1\r\n\r\n")
                heard = b""
                while not heard.endswith(b"ab"):
                    heard += await server.hear(1)
                await server.end()
                heard += await server.hear_all()

    assert heard.endswith(b"\r\n\r\nab")


async def test_an_answer_before_the_end_of_a_body_arrives_whole() -> None:
    async with open_place() as place:
        async with open_proxy([PLAIN], leading_to(place, HOST, port=80)) as door:
            head = f"PUT {PLAIN}/ HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: 9999999\r\n\r\n"
            async with door.visitor(head.encode()) as client, place.visitor() as server:
                await client.say(bytes(100_000))
                await server.hear(100_000)
                await server.say(b"HTTP/1.1 413 Content Too Large\r\n\r\n")
                await server.end()
                await client.say(bytes(50_000))
                answer = await client.hear_all()

    assert answer == b"HTTP/1.1 413 Content Too Large\r\n\r\n"


async def test_what_was_granted_through_tls_only_is_not_had_without_it() -> None:
    network = FakeNetwork({})
    async with open_proxy([HOST], network) as door:
        answer = await door.asked(f"GET {PLAIN}/ HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode())
        verdict = await door.verdict()

    assert answer.startswith(b"HTTP/1.1 403 Forbidden\r\n")
    assert verdict.reason is Why.PLAIN
    assert network.looked_up == []


async def test_a_plain_name_leads_no_further_than_any_other() -> None:
    network = FakeNetwork({HOST: ["169.254.169.254"]})
    async with open_proxy([PLAIN], network) as door:
        answer = await door.asked(
            f"GET {PLAIN}/latest/meta-data/ HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode()
        )

    assert answer.startswith(b"HTTP/1.1 403 Forbidden\r\n")
    assert network.dialled == []


async def test_a_body_in_chunks_is_asked_for_with_its_length() -> None:
    async with open_proxy([PLAIN], FakeNetwork({})) as door:
        head = f"POST {PLAIN}/ HTTP/1.1\r\nHost: {HOST}\r\nTransfer-Encoding: chunked\r\n"
        smuggled = head + "Content-Length: 5\r\n\r\n0\r\n\r\nGET /x HTTP/1.1\r\n\r\n"
        answers = [await door.asked(it.encode()) for it in (head + "\r\n", smuggled)]

    assert [it.split()[1] for it in answers] == [b"411", b"411"]


async def test_an_answer_beyond_the_budget_is_cut_and_does_not_look_whole() -> None:
    budgets = replace(SHORT, received_bytes=30)
    async with open_place() as place:
        async with open_proxy([PLAIN], leading_to(place, HOST, port=80), budgets) as door:
            said = f"GET {PLAIN}/ HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode()
            async with door.visitor(said) as client, place.visitor() as server:
                await server.say(b"HTTP/1.1 200 OK\r\n\r\n")
                assert await client.hear(19) == b"HTTP/1.1 200 OK\r\n\r\n"
                await server.say(b"x" * 12)

                assert await client.is_cut()
                assert (await door.verdict()).reason is Ending.BYTES
