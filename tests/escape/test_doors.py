"""A sealed run finds the doors that were opened for it, by its environment alone, and no others."""

from __future__ import annotations

import json
import shutil
import tempfile
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from socket import create_server, socket

import pytest

from support.command import Command

ASKS = '[capabilities]\nhosts = ["example.invalid", "*.example.org:8443"]\n'
GRANTS = ("--grant", "host=example.invalid", "--grant", "host=*.example.org:8443")
PAGE = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nthe upstream says hello"
CURL = "curl -sS --max-time 10"
SAY = 'echo \'{"type":"turn-end","result":"done"}\'\n'


@pytest.fixture
def command(namespaces: str) -> Generator[Command]:
    """Return `capsule` in a folder outside of /tmp, which a sealed run has for itself."""
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    folder = Path(tempfile.mkdtemp(prefix="doors-", dir="/var/tmp"))
    try:
        (folder / "work").mkdir()
        yield Command(folder)
    finally:
        shutil.rmtree(folder)


@contextmanager
def served_page() -> Generator[int]:
    """Answer on a port of this machine's loopback, with the same page to each."""

    def answer(listener: socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            with client:
                client.recv(65536)
                client.sendall(PAGE)

    with create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer, args=(listener,))
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(2)
    thread.join()


def ran(command: Command, script: str, *words: str) -> tuple[str, dict[str, object], str]:
    """Return what the shell *script* said in a sealed run, what is known of it, and its log."""
    capsule = command.capsule(f"read task\nexec 3>&1 >&2\n{script}\nexec >&3\n{SAY}")
    with (Path(capsule) / "capsule.toml").open("a") as manifest:
        manifest.write(ASKS)
    wishes = ("--containment", "sealed", "--workdir", str(command.folder / "work"), *GRANTS)
    done = command("run", capsule, "--task", "go", *wishes, *words)
    assert done.status == 0, done.err
    shown = json.loads(command("show", "--json", "@last").out)
    said = (command.state / "runs" / shown["run"] / "stderr.log").read_text()
    return said, shown["egress"], done.err


def test_the_proxy_is_found_and_lets_nobody_through_who_was_not_granted(command: Command) -> None:
    script = "\n".join(
        f"{CURL} {url}"
        for url in ("https://other.org/", "http://example.invalid/", "https://a.example.org/")
    )
    said, egress, told = ran(command, script)

    assert said.count("response 403") == 2
    assert "example.invalid was not granted without TLS (plain)" in said
    assert (egress["allowed"], egress["refused"]) == (0, 3)
    assert "network: refused (port): a.example.org was granted on port 8443, not 443" in told


def test_a_granted_name_is_looked_up_outside(command: Command) -> None:
    said, egress, _ = ran(command, f"{CURL} https://example.invalid/")

    assert "response 502" in said
    assert egress["refused"] == 1


def test_the_upstream_is_reached_and_nothing_else_of_this_machine(command: Command) -> None:
    with served_page() as upstream, served_page() as other:
        urls = [f"http://127.0.0.1:{port}/" for port in (upstream, other)]
        script = "\n".join(
            [f"{CURL} {url}" for url in urls]
            + [f"{CURL} --noproxy '' --proxy $HTTPS_PROXY -p {url}" for url in urls]
        )
        said, egress, _ = ran(command, script, "--upstream", f"127.0.0.1:{upstream}")

    assert said.count("the upstream says hello") == 1
    assert said.count("response 403") == 2
    assert (egress["allowed"], egress["refused"]) == (1, 2)


def test_a_run_without_grants_has_no_door(command: Command) -> None:
    capsule = command.capsule(
        f"read task\nenv | grep -i proxy >&2\n{CURL} https://a.org >&2\n{SAY}"
    )
    work = str(command.folder / "work")
    done = command("run", capsule, "--task", "go", "--containment", "sealed", "--workdir", work)
    shown = json.loads(command("show", "--json", "@last").out)
    said = (command.state / "runs" / shown["run"] / "stderr.log").read_text()

    assert done.status == 0
    assert "Could not resolve host" in said
    assert "PROXY" not in said
    assert shown["egress"] is None


def test_a_plan_says_whether_anything_holds_a_run_to_its_hosts(command: Command) -> None:
    capsule = command.capsule(SAY)
    with (Path(capsule) / "capsule.toml").open("a") as manifest:
        manifest.write(ASKS)
    caveats = dict[str, list[str]]()
    for tier in ("sealed", "advisory"):
        words = ("--containment", tier, "--workdir", str(command.folder / "work"), *GRANTS)
        done = command("run", capsule, "--task", "go", *words, "--explain", "--json")
        caveats[tier] = json.loads(done.out)["caveats"]

    assert not any("network is open" in caveat for caveat in caveats["sealed"])
    assert any("network is open" in caveat for caveat in caveats["advisory"])
