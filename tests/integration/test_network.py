"""The network of this machine: names looked up in bounded time, and which addresses are its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from socket import AF_INET, SOCK_DGRAM, create_server, gaierror, socket
from threading import Event

import anyio
import pytest

from capsule_runtime.host.network import LOOKUPS_AT_MOST, SystemNetwork, leads_here
from support.doors import PATIENCE_SECONDS


async def test_names_of_this_machine_are_found() -> None:
    assert "127.0.0.1" in await SystemNetwork().resolve("localhost")


async def test_a_name_that_is_none_is_not_found() -> None:
    with pytest.raises(gaierror):
        await SystemNetwork().resolve("a." + "b" * 70 + ".invalid")


async def test_who_listens_is_reached_and_who_does_not_is_not() -> None:
    with create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with await SystemNetwork().dial("127.0.0.1", port) as peer:
            assert peer.getpeername() == ("127.0.0.1", port)
            assert not peer.getblocking()
    with pytest.raises(ConnectionRefusedError):
        await SystemNetwork().dial("127.0.0.1", port)


async def test_a_resolver_that_never_answers_holds_up_few_threads_and_nobody_else() -> None:
    stuck = Event()
    looked_up = list[str]()

    def look_up(name: str) -> Sequence[str]:
        looked_up.append(name)
        if name == "stuck.org":
            stuck.wait(PATIENCE_SECONDS)
        return ["1.1.1.1"]

    network = SystemNetwork(look_up)
    try:
        for _ in range(3):
            with anyio.move_on_after(0.05):
                await network.resolve("stuck.org")
        assert await network.resolve("a.org") == ["1.1.1.1"]
        for _ in range(LOOKUPS_AT_MOST):
            with anyio.move_on_after(0.02):
                try:
                    await network.resolve("stuck.org")
                except OSError:
                    break
        with pytest.raises(OSError, match="does not answer"):
            await network.resolve("a.org")
    finally:
        stuck.set()
    assert len(looked_up) <= LOOKUPS_AT_MOST + 1


@pytest.mark.parametrize("address", ["127.0.0.1", "127.8.9.10", "0.0.0.0", "224.0.0.1", "::1"])
def test_what_the_kernel_keeps_leads_here(address: str) -> None:
    assert leads_here(address)


def test_an_address_of_an_interface_leads_here_and_one_beyond_does_not() -> None:
    with socket(AF_INET, SOCK_DGRAM) as probe:
        try:
            probe.connect(("1.1.1.1", 9))
        except OSError:
            pytest.skip("this machine has no way to other networks")
        own: str = probe.getsockname()[0]

    assert leads_here(own)
    assert not leads_here("1.1.1.1")


LOOK = """
import json, sys
from capsule_runtime.host.network import leads_here
print(json.dumps({address: leads_here(address) for address in sys.argv[1:]}))
"""


def test_each_address_of_each_interface_leads_here_also_those_of_whole_networks() -> None:
    if os.geteuid() != 0 or not (shutil.which("ip") and shutil.which("unshare")):
        pytest.skip("only root makes interfaces, with ip and unshare")
    setting_up = (
        "for kind in dummy bridge ifb; do ip link add d0 type $kind 2>/dev/null && break; done"
        " && ip link set d0 up && ip addr add 1.2.3.4/24 dev d0"
        " && ip addr add 1.2.3.5/24 dev d0 && ip -6 addr add 2606:4700::5/64 dev d0 nodad"
        " && ip route add local 9.9.9.0/24 dev d0 && exec "
    )
    there = ["1.2.3.4", "1.2.3.5", "2606:4700::5", "9.9.9.77", "1.2.3.255"]
    beyond = ["1.2.3.6", "8.8.8.8", "2606:4700::6", "2001:4860::1"]
    words = [sys.executable, "-c", LOOK, *there, *beyond]
    done = subprocess.run(
        ["unshare", "-n", "sh", "-c", setting_up + '"$@"', "sh", *words],
        capture_output=True,
        timeout=PATIENCE_SECONDS,
    )

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == dict.fromkeys(there, True) | dict.fromkeys(beyond, False)
