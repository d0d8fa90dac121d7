"""What a run says to its upstream arrives there byte by byte, and nowhere else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from socket import AF_UNIX, socket

import anyio
import pytest
from msgspec.structs import replace

from capsule_runtime.core.destinations import Destination, parse_upstream
from capsule_runtime.core.verdicts import Ending, Verdict, Why
from capsule_runtime.host.network import SystemNetwork
from capsule_runtime.host.passage import Limits, places_of_all
from capsule_runtime.host.upstream import serve_upstream
from capsule_runtime.testing import FakeNetwork
from support.doors import SHORT, open_files, open_place, open_upstream


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_bytes_go_both_ways_and_each_end_by_itself(host: str) -> None:
    async with open_place() as place:
        upstream = parse_upstream(f"{host}:{place.port}")
        async with open_upstream(upstream, SystemNetwork()) as door:
            async with door.visitor(b"\x00anything\r\n") as client, place.visitor() as server:
                assert await server.hear(11) == b"\x00anything\r\n"
                await client.end()
                assert await server.hear_all() == b""
                await server.say(b"answer")
                await server.end()
                assert await client.hear_all() == b"answer"

            verdict = await door.verdict()
    assert replace(verdict, ms=0) == Verdict(Ending.CLOSED, upstream, "127.0.0.1", "", 11, 6)


async def test_many_at_once_are_kept_apart() -> None:
    async with open_place() as place:
        upstream = Destination("127.0.0.1", place.port)
        async with open_upstream(upstream, SystemNetwork()) as door:
            async with door.visitor(b"one") as one, place.visitor() as of_one:
                async with door.visitor(b"two") as two, place.visitor() as of_two:
                    assert [await of_one.hear(3), await of_two.hear(3)] == [b"one", b"two"]
                    await of_two.say(b"2")
                    await of_one.say(b"1")
                    assert [await one.hear(1), await two.hear(1)] == [b"1", b"2"]


async def test_a_listener_may_be_a_unix_socket(tmp_path: Path) -> None:
    async with open_place() as place:
        upstream, told = Destination("127.0.0.1", place.port), list[Verdict]()
        with socket(AF_UNIX) as listener:
            listener.bind(str(tmp_path / "door"))
            listener.listen()
            async with anyio.create_task_group() as tasks:
                limits, network = Limits(SHORT, places_of_all()), SystemNetwork()
                tasks.start_soon(serve_upstream, listener, upstream, network, told.append, limits)
                async with await anyio.connect_unix(tmp_path / "door") as client:
                    await client.send(b"abc")
                    async with place.visitor() as server:
                        assert await server.hear(3) == b"abc"
                        await server.say(b"d")
                        assert await client.receive() == b"d"
                tasks.cancel_scope.cancel()

    assert [it.sent for it in told] == [3]


async def test_where_nobody_is_there_the_connection_is_cut_and_the_verdict_says_why() -> None:
    async with open_place() as place:
        gone = Destination("127.0.0.1", place.port)
    async with open_upstream(gone, SystemNetwork()) as door, door.visitor() as client:
        assert await client.is_cut()
        verdict = await door.verdict()

    assert verdict.reason is Why.UNREACHABLE
    assert "Connection refused" in verdict.message


async def test_a_name_that_nobody_knows_is_told_as_such() -> None:
    async with open_upstream(Destination("nowhere.example", 80), FakeNetwork({})) as door:
        async with door.visitor() as client:
            assert await client.is_cut()
        verdict = await door.verdict()

    assert verdict.reason is Why.UNRESOLVED


async def test_its_budget_of_bytes_is_for_all_connections_together() -> None:
    async with open_place() as place:
        upstream = Destination("127.0.0.1", place.port)
        budgets = replace(SHORT, sent_bytes=4)
        async with open_upstream(upstream, SystemNetwork(), budgets) as door:
            async with door.visitor(b"abc") as client, place.visitor() as server:
                assert await server.hear(3) == b"abc"
                async with door.visitor(b"de") as second:
                    assert await second.is_cut()
                await client.say(b"d")
                assert await server.hear(1) == b"d"
            async with door.visitor() as third:
                assert await third.is_cut()
            verdicts = [await door.verdict() for _ in range(3)]

    assert [it.reason for it in verdicts] == [Ending.BYTES, Ending.CLOSED, Why.SPENT]


async def test_the_end_of_a_run_leaves_nothing_open() -> None:
    before = open_files()
    async with open_place() as place:
        upstream = Destination("127.0.0.1", place.port)
        async with open_upstream(upstream, SystemNetwork()) as door:
            async with door.visitor(b"a") as client, place.visitor() as server:
                assert await server.hear(1) == b"a"
                await door.close()

                assert await client.is_cut()
                assert await server.is_cut()
                assert (await door.verdict()).reason is Ending.CANCELLED
    assert open_files() == before


class Unreliable(FakeNetwork):
    """A network whose resolver fails in a way that is no answer."""

    async def resolve(self, name: str) -> Sequence[str]:
        raise TimeoutError


async def test_a_resolver_that_gives_up_is_one_that_was_too_slow() -> None:
    async with open_upstream(Destination("a.org", 80), Unreliable({})) as door:
        async with door.visitor() as client:
            assert await client.is_cut()

        assert (await door.verdict()).reason is Why.TIMEOUT
