"""The proxy of a run, with real sockets: what it lets through, what it refuses, and what it leaves."""

from __future__ import annotations

import resource
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from socket import socket

import anyio
import pytest
from anyio.abc import SocketStream
from msgspec.structs import replace

from capsule_runtime.core.destinations import Destination
from capsule_runtime.core.egress import Budgets
from capsule_runtime.core.verdicts import Ending, Verdict, Why
from capsule_runtime.testing import FakeNetwork
from support.doors import (
    ADDRESS,
    SHORT,
    Door,
    Visitor,
    connect_head,
    greeting_for,
    leading_to,
    open_files,
    open_place,
    open_proxy,
)

HOST = "example.org"
GO_ON = b"HTTP/1.1 200 Connection established\r\n\r\n"
ALERT = b"\x15\x03\x03\x00\x02\x02\x70"
GREETING = greeting_for(HOST)


def status(answer: bytes) -> str:
    return answer.split()[1].decode()


@asynccontextmanager
async def tunnel(budgets: Budgets = SHORT) -> AsyncGenerator[tuple[Door, Visitor, Visitor]]:
    """Yield a door, a client whose tunnel is up, and the server that it leads to."""
    async with open_place() as place:
        async with open_proxy([HOST], leading_to(place, HOST), budgets) as door:
            head = connect_head(f"{HOST}:443")
            async with door.visitor(head + GREETING) as client, place.visitor() as server:
                assert await client.hear(len(GO_ON)) == GO_ON
                assert await server.hear(len(GREETING)) == GREETING
                yield door, client, server


# What is let through.


async def test_a_tunnel_carries_bytes_both_ways_and_each_end_by_itself() -> None:
    async with tunnel() as (door, client, server):
        await server.say(b"one")
        assert await client.hear(3) == b"one"
        await client.say(b"two")
        await client.end()
        assert await server.hear_all() == b"two"
        await server.say(b"three")
        await server.end()
        assert await client.hear_all() == b"three"

        verdict = await door.verdict()
    assert replace(verdict, ms=0) == Verdict(
        Ending.CLOSED, Destination(HOST), ADDRESS, "", len(GREETING) + 3, 8
    )


async def test_a_greeting_may_come_a_byte_at_a_time_and_nothing_passes_before_its_end() -> None:
    async with open_place() as place, open_proxy([HOST], leading_to(place, HOST)) as door:
        async with door.visitor() as client:
            await client.say(connect_head(f"{HOST}:443"))
            assert await client.hear(len(GO_ON)) == GO_ON
            async with place.visitor() as server:
                for at in range(len(GREETING) - 1):
                    await client.say(GREETING[at : at + 1])
                with anyio.move_on_after(0.05) as nothing_came:
                    await server.stream.receive()
                await client.say(GREETING[-1:])

                assert nothing_came.cancelled_caught
                assert await server.hear(len(GREETING)) == GREETING


async def test_a_name_is_looked_up_once_and_its_public_address_is_dialled() -> None:
    async with open_place() as place:
        addresses = ["127.0.0.1", "::ffff:127.0.0.1", ADDRESS, "10.0.0.1"]
        network = FakeNetwork({HOST: addresses}, {(ADDRESS, 443): place.port})
        said = connect_head("Example.ORG.:443")
        async with open_proxy([HOST], network) as door, door.visitor(said) as client:
            assert await client.hear(len(GO_ON)) == GO_ON
            assert network.looked_up == [HOST]
            assert network.dialled == [(ADDRESS, 443)]


async def test_the_next_address_is_dialled_where_nobody_answers() -> None:
    async with open_place() as place:
        network = FakeNetwork({HOST: ["1.1.1.2", ADDRESS]}, {(ADDRESS, 443): place.port})
        said = connect_head(f"{HOST}:443")
        async with open_proxy([HOST], network) as door, door.visitor(said) as client:
            assert await client.hear(len(GO_ON)) == GO_ON
            assert network.dialled == [("1.1.1.2", 443), (ADDRESS, 443)]


async def test_a_listed_address_is_dialled_without_looking_anything_up() -> None:
    async with open_place() as place:
        network = FakeNetwork({}, {("10.1.2.3", 8443): place.port})
        async with open_proxy(["10.1.2.3:8443"], network) as door, door.visitor() as client:
            await client.say(connect_head("10.1.2.3:8443") + greeting_for(None))
            assert await client.hear(len(GO_ON)) == GO_ON
            async with place.visitor() as server:
                assert await server.hear(1) == b"\x16"
            assert network.looked_up == []


# What is refused.


@pytest.mark.parametrize(
    ("request_head", "code", "why"),
    [
        (connect_head("other.org:443"), "403", Why.HOST),
        (connect_head(f"{HOST}:8443"), "403", Why.PORT),
        (connect_head("1.1.1.1:443"), "403", Why.LITERAL),
        (connect_head("[::1]:443"), "403", Why.LITERAL),
        (connect_head("169.254.169.254:80"), "403", Why.LITERAL),
        (f"GET http://{HOST}/ HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode(), "403", Why.PLAIN),
        (connect_head(f"a@{HOST}:443"), "400", Why.MALFORMED),
        (connect_head(f"{HOST}:0"), "400", Why.MALFORMED),
        (connect_head(f"{HOST}:65536"), "400", Why.MALFORMED),
        (connect_head(f"http://{HOST}:443"), "400", Why.MALFORMED),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "400", Why.MALFORMED),
        (b"CONNECT example.org:443 HTTP/1.1\nHost: example.org\n\r\n\r\n", "400", Why.MALFORMED),
        (b"TRACE http://example.org/ HTTP/1.0\r\n\r\n", "405", Why.METHOD),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "505", Why.VERSION),
        (connect_head(f"{HOST}:443")[:-2] + b"X: " + b"a" * 10_000, "431", Why.TOO_LARGE),
        (b"a" * 200_000, "431", Why.TOO_LARGE),
    ],
)
async def test_what_is_refused_is_told_so_and_reaches_nobody(
    request_head: bytes, code: str, why: Why
) -> None:
    network = FakeNetwork({})
    async with open_proxy([HOST], network) as door:
        answer = await door.asked(request_head)
        verdict = await door.verdict()

    assert status(answer) == code
    assert f"({why})" in answer.decode()
    assert verdict.reason is why
    assert (verdict.sent, verdict.received, verdict.address) == (0, 0, None)
    assert (network.looked_up, network.dialled) == ([], [])


@pytest.mark.parametrize(
    "address",
    """
    127.0.0.1 169.254.169.254 168.63.129.16 10.0.0.1 192.168.0.1 100.64.0.1 0.0.0.0 224.0.0.1 ::1 ::
    fe80::1 fd00::1 ::ffff:127.0.0.1 ::ffff:1.1.1.1 64:ff9b::7f00:1 2002:7f00:1:: 2001:db8::1
    1.0.0.1
    """.split(),
)
async def test_a_granted_name_that_leads_where_no_run_may_go_is_not_dialled(address: str) -> None:
    network = FakeNetwork({HOST: [address]}, {(address, 443): 9}, own={"1.0.0.1"})
    async with open_proxy([HOST], network) as door:
        answer = await door.asked(connect_head(f"{HOST}:443"))
        verdict = await door.verdict()

    assert status(answer) == "403"
    assert verdict.reason is Why.ADDRESS
    assert address in verdict.message
    assert network.dialled == []


class Rebinding(FakeNetwork):
    """A network whose names lead elsewhere with each look."""

    async def resolve(self, name: str) -> Sequence[str]:
        await super().resolve(name)
        return [ADDRESS] if len(self.looked_up) == 1 else ["127.0.0.1"]


async def test_a_name_that_leads_elsewhere_a_moment_later_changes_nothing() -> None:
    async with open_place() as place:
        network = Rebinding({HOST: ()}, {(ADDRESS, 443): place.port, ("127.0.0.1", 443): 9})
        async with open_proxy([HOST], network) as door:
            async with door.visitor() as client:
                await client.say(connect_head(f"{HOST}:443"))
                assert await client.hear(len(GO_ON)) == GO_ON
            answer = await door.asked(connect_head(f"{HOST}:443"))

    assert status(answer) == "403"
    assert network.dialled == [(ADDRESS, 443)]


@pytest.mark.parametrize(
    ("first", "answered", "why"),
    [
        (greeting_for("other.org"), ALERT, Why.SNI),
        (greeting_for(f"x.{HOST}"), ALERT, Why.SNI),
        (greeting_for(None), ALERT, Why.SNI),
        (b"GET / HTTP/1.1\r\nHost: other.org\r\n\r\n", b"", Why.NOT_TLS),
        (b"SSH-2.0-OpenSSH_9.2\r\n", b"", Why.NOT_TLS),
        (GREETING[:5] + b"\x02" + GREETING[6:], b"", Why.NOT_TLS),
    ],
)
async def test_not_a_byte_passes_that_is_not_tls_for_the_host(
    first: bytes, answered: bytes, why: Why
) -> None:
    async with open_place() as place, open_proxy([HOST], leading_to(place, HOST)) as door:
        said = connect_head(f"{HOST}:443") + first
        async with door.visitor(said) as client, place.visitor() as server:
            assert await client.hear_all() == GO_ON + answered
            assert await server.hear_all() == b""
        verdict = await door.verdict()
    assert verdict.reason is why
    assert (verdict.sent, verdict.received) == (0, 0)


async def test_who_cannot_be_found_or_reached_is_told_as_a_gateway_tells_it() -> None:
    async with open_proxy([HOST, "nowhere.org"], FakeNetwork({HOST: [ADDRESS]})) as door:
        not_there = await door.asked(connect_head(f"{HOST}:443"))
        unknown = await door.asked(connect_head("nowhere.org:443"))
        verdicts = [await door.verdict(), await door.verdict()]

    assert [status(not_there), status(unknown)] == ["502", "502"]
    assert [it.reason for it in verdicts] == [Why.UNREACHABLE, Why.UNRESOLVED]
    assert verdicts[0].address == ADDRESS


class Silent(FakeNetwork):
    """A network that never answers."""

    async def resolve(self, name: str) -> Sequence[str]:
        if name == HOST:
            return [ADDRESS]
        await anyio.sleep_forever()
        raise AssertionError

    async def dial(self, address: str, port: int) -> socket:
        await anyio.sleep_forever()
        raise AssertionError


@pytest.mark.parametrize("name", [HOST, "silent.org"])
async def test_who_does_not_answer_in_time_is_given_up(name: str) -> None:
    budgets = replace(SHORT, resolve_seconds=0.05, dial_seconds=0.05)
    async with open_proxy([HOST, "silent.org"], Silent({}), budgets) as door:
        answer = await door.asked(connect_head(f"{name}:443"))
        verdict = await door.verdict()

    assert status(answer) == "504"
    assert verdict.reason is Why.TIMEOUT


# Budgets.


async def test_a_head_or_a_greeting_that_trickles_in_is_given_up() -> None:
    budgets = replace(SHORT, head_seconds=0.2)
    async with open_place() as place, open_proxy([HOST], leading_to(place, HOST), budgets) as door:
        assert status(await door.asked(b"CONNECT ")) == "408"
        said = connect_head(f"{HOST}:443") + GREETING[:-1]
        async with door.visitor(said) as client, place.visitor() as server:
            assert await client.hear_all() == GO_ON
            assert await server.hear_all() == b""
        verdicts = [await door.verdict(), await door.verdict()]

    assert [it.reason for it in verdicts] == [Why.TOO_SLOW, Why.TOO_SLOW]


async def test_who_comes_and_asks_for_nothing_gets_no_verdict_and_no_time() -> None:
    async with open_proxy([HOST], FakeNetwork({}), replace(SHORT, head_seconds=0.05)) as door:
        async with door.visitor() as silent:
            assert await silent.hear_all() == b""
        async with door.visitor():
            pass
        await door.asked(b"x\r\n\r\n")
        verdict = await door.verdict()

    assert verdict.reason is Why.MALFORMED


async def test_so_many_are_let_in_and_the_others_wait_for_a_place() -> None:
    budgets = replace(SHORT, connections=2)
    async with open_place() as place, open_proxy([HOST], leading_to(place, HOST), budgets) as door:
        async with door.visitor() as first, door.visitor() as second, door.visitor() as third:
            for client in (first, second, third):
                await client.say(connect_head(f"{HOST}:443"))
            for client in (first, second):
                assert await client.hear(len(GO_ON)) == GO_ON
            with anyio.move_on_after(0.05) as waited:
                await third.stream.receive()
            await first.stream.aclose()

            assert waited.cancelled_caught
            assert await third.hear(len(GO_ON)) == GO_ON


async def test_all_runs_share_the_places_that_the_machine_has_and_an_empty_door_holds_none() -> (
    None
):
    of_all = anyio.Semaphore(1)
    async with (
        open_place() as place,
        open_proxy([HOST], leading_to(place, HOST), of_all=of_all),
        open_proxy([HOST], leading_to(place, HOST), of_all=of_all) as one,
        open_proxy([HOST], leading_to(place, HOST), of_all=of_all) as two,
    ):
        said = connect_head(f"{HOST}:443")
        async with one.visitor(said) as first:
            assert await first.hear(len(GO_ON)) == GO_ON
            async with two.visitor(said) as second:
                with anyio.move_on_after(0.05) as waited:
                    await second.stream.receive()
                await first.stream.aclose()

                assert waited.cancelled_caught
                assert await second.hear(len(GO_ON)) == GO_ON


async def test_who_finds_no_descriptor_left_waits_until_there_is_one() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with open_proxy([HOST], FakeNetwork({})) as door:
        raw = socket()
        raw.setblocking(False)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
        try:
            raw.connect_ex(("127.0.0.1", door.port))
            with anyio.move_on_after(0.3) as waited:
                await anyio.wait_writable(raw)
                raw.send(connect_head("other.org:443"))
                await anyio.wait_readable(raw)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        client = Visitor(await SocketStream.from_socket(raw))
        async with client.stream:
            answer = await client.hear_all()

    assert waited.cancelled_caught
    assert status(answer) == "403"


async def test_a_flood_of_refused_ones_leaves_nothing_open_and_loses_none() -> None:
    async with open_proxy([HOST], FakeNetwork({}), replace(SHORT, connections=8)) as door:
        before = open_files()

        async def ask() -> None:
            for _ in range(20):
                assert status(await door.asked(connect_head("other.org:443"))) == "403"

        async with anyio.create_task_group() as tasks:
            for _ in range(10):
                tasks.start_soon(ask)
        reasons = [(await door.verdict()).reason for _ in range(200)]

        assert set(reasons) == {Why.HOST}
        assert open_files() == before


async def test_the_place_of_a_refused_one_is_not_given_away_at_once() -> None:
    budgets = replace(SHORT, connections=1, refusal_seconds=0.2)
    async with open_proxy([HOST], FakeNetwork({}), budgets) as door:
        began = anyio.current_time()
        for _ in range(3):
            await door.asked(connect_head("other.org:443"))

        assert anyio.current_time() - began >= 0.4


async def test_bytes_beyond_the_budget_of_the_run_are_not_carried() -> None:
    budgets = replace(SHORT, sent_bytes=len(GREETING) + 10, received_bytes=10)
    async with tunnel(budgets) as (door, client, server):
        await client.say(b"0123456789")
        assert await server.hear(10) == b"0123456789"
        await client.say(b"!")
        assert await server.is_cut()
        assert await client.is_cut()
        verdict = await door.verdict()
        next_one = await door.asked(connect_head(f"{HOST}:443"))

    assert verdict.reason is Ending.BYTES
    assert verdict.sent == len(GREETING) + 10
    assert status(next_one) == "403"


async def test_what_comes_back_has_a_budget_too() -> None:
    async with tunnel(replace(SHORT, received_bytes=10)) as (door, client, server):
        await server.say(b"01234567890")

        assert await client.is_cut()
        assert (await door.verdict()).reason is Ending.BYTES


@pytest.mark.parametrize(
    ("budgets", "ending"),
    [
        (replace(SHORT, idle_seconds=0.1), Ending.IDLE),
        (replace(SHORT, connection_seconds=0.1), Ending.TIME),
    ],
)
async def test_a_tunnel_in_which_nothing_happens_is_cut(budgets: Budgets, ending: Ending) -> None:
    async with tunnel(budgets) as (door, client, server):
        assert await client.is_cut()
        assert await server.is_cut()
        assert (await door.verdict()).reason is ending


async def test_what_a_server_has_closed_is_not_kept_for_long_and_ends_in_order() -> None:
    async with tunnel(replace(SHORT, half_open_seconds=0.1)) as (door, client, server):
        await server.end()
        assert await client.hear_all() == b""

        assert (await door.verdict()).reason is Ending.CLOSED
        assert not await server.is_cut()


async def test_a_tunnel_that_is_used_has_its_idle_time_anew() -> None:
    async with tunnel(replace(SHORT, idle_seconds=0.5)) as (_, client, server):
        for _ in range(20):
            await anyio.sleep(0.05)
            await client.say(b"a")
            assert await server.hear(1) == b"a"


async def test_who_does_not_read_is_not_read_for() -> None:
    """What a server sends stays with the server, but for what the machine's own buffers hold."""
    async with tunnel() as (_, _client, server):
        sent = 0
        with anyio.move_on_after(60) as patience:
            while True:
                with anyio.move_on_after(0.5) as stuck:
                    await server.stream.send(bytes(65536))
                if stuck.cancelled_caught:
                    break
                sent += 65536

    assert not patience.cancelled_caught
    assert sent < 32 * 2**20


async def test_a_cut_is_passed_on_as_a_cut() -> None:
    async with tunnel() as (door, client, server):
        await server.cut()

        assert await client.is_cut()
        assert (await door.verdict()).reason is Ending.RESET


async def test_the_end_of_a_run_cuts_its_tunnels_and_leaves_nothing_open() -> None:
    before = open_files()
    async with open_place() as place:
        async with open_proxy([HOST], leading_to(place, HOST)) as door:
            said = connect_head(f"{HOST}:443") + GREETING
            async with door.visitor(said) as client, place.visitor() as server:
                await server.hear(len(GREETING))
                async with door.visitor() as waiting:
                    await waiting.say(b"CONNECT")
                    while_it_runs = open_files()
                    await door.close()

                    assert open_files() == while_it_runs - 3
                    assert await client.is_cut()
                    assert await server.is_cut()
                    assert (await door.verdict()).reason is Ending.CANCELLED
    assert open_files() == before
