"""`capsule run` of sealed and of scoped runs: what a user types, and what comes of it."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
from collections.abc import Generator
from contextlib import closing
from pathlib import Path

import pytest

from capsule_runtime.host.namespaces import find_namespaces
from capsule_runtime.host.scoping import find_scopes
from support.command import HELLO, PATIENT, Command
from support.processes import processes_below

SAYS_WHAT_A_SHELL_SAYS = """
import json, subprocess, sys
sys.stdin.readline()
script = __file__.replace("agent.py", "script.sh")
done = subprocess.run(["sh", script], capture_output=True, text=True)
print(json.dumps({"type": "turn-end", "result": done.stdout + done.stderr}), flush=True)
"""
FETCH = """python3 -c "
import sys, urllib.request
try:
    print(urllib.request.urlopen(sys.argv[1], timeout=10).read().decode())
except OSError as refusal:
    print(refusal)
" """


@pytest.fixture(params=["sealed", "scoped"])
def tier(request: pytest.FixtureRequest) -> str:
    """Return a tier; where this machine cannot have it there is nothing to test."""
    name: str = request.param
    why = find_namespaces().why if name == "sealed" else find_scopes().why
    if why:
        pytest.skip(why)
    return name


@pytest.fixture
def command(tmp_path: Path) -> Command:
    return Command(tmp_path)


@pytest.fixture
def upstream() -> Generator[int]:
    """Return the port of a server on this machine that says what it is."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:

        def answer() -> None:
            while True:
                try:
                    client, _ = server.accept()
                except OSError:
                    return
                with client:
                    client.recv(4096)
                    client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nupstream")

        serving = threading.Thread(target=answer)
        serving.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        serving.join()


def asking(command: Command, script: str, capabilities: str = "") -> str:
    """Return a capsule that answers with what the shell *script* prints."""
    folder = command.folder / "asking"
    folder.mkdir()
    (folder / "capsule.toml").write_text(
        'name = "asking"\n[harness]\ndriver = "jsonl"\ncommand = ["python3", "./agent.py"]\n'
        f"[capabilities]\n{capabilities}\n"
    )
    (folder / "script.sh").write_text(script)
    (folder / "agent.py").write_text(SAYS_WHAT_A_SHELL_SAYS)
    return str(folder)


def says(command: Command, tier: str, script: str, *words: str, capabilities: str = "") -> str:
    """Return what *script* prints in a run of *tier*."""
    capsule = asking(command, script, capabilities)
    (command.folder / "work").mkdir(exist_ok=True)
    done = command(
        "run", capsule, "--task", "go", "--workdir", "work", "--containment", tier, *words
    )
    assert done.status == 0, done.err
    return done.out.strip()


def test_a_run_gets_the_strongest_tier_where_nobody_names_one(command: Command) -> None:
    strongest = "scoped" if find_namespaces().why else "sealed"

    done = command("run", command.capsule(HELLO), "--task", "go", "--workdir", "capsule")

    assert (done.status, done.out) == (0, "hello world\n")
    assert f"containment: {strongest}" in done.err


def test_the_places_it_is_told_are_there(command: Command, tier: str) -> None:
    told = says(
        command, tier, 'cd; pwd; cd "$TMPDIR" && pwd; cd "$CAPSULE_OUT" && echo x > left && pwd'
    )

    assert len(told.split()) == 3
    assert (str(command.folder) in told) == (tier == "scoped")
    assert "left" in command("show", "@last").out


def test_what_it_makes_stays_in_the_work_directory(command: Command, tier: str) -> None:
    says(command, tier, "echo made > made")

    made = command.folder / "work" / "made"
    assert made.read_text() == "made\n"
    assert made.stat().st_uid == os.getuid()


def test_a_repository_is_one_to_it(command: Command, tier: str) -> None:
    script = "git init -q . && git -c user.name=x -c user.email=x@y commit -q --allow-empty -m one"

    told = says(command, tier, f"{script} && git log --format=%s")

    assert told == "one"


def test_a_variable_of_the_caller_is_none_of_its_business(command: Command, tier: str) -> None:
    command.env["SECRET_OF_MINE"] = "canary"

    told = says(command, tier, "env; cat /proc/*/environ | tr '\\0' '\\n'")

    assert "canary" not in told


def test_nothing_is_reached_without_a_door(command: Command, tier: str, upstream: int) -> None:
    assert "refused" in says(command, tier, f"{FETCH} http://127.0.0.1:{upstream}/")


def test_the_upstream_is_reached_at_its_own_port(
    command: Command, tier: str, upstream: int
) -> None:
    place = f"127.0.0.1:{upstream}"

    told = says(command, tier, f"{FETCH} http://{place}/", "--upstream", place)

    assert told == "upstream"
    assert f"{place} (upstream): 1 allowed" in command("show", "@last").out


@pytest.mark.parametrize("upstream", ["here", "127.0.0.1:443"])
def test_an_upstream_that_cannot_be_is_refused(command: Command, upstream: str) -> None:
    words = ("run", command.capsule(HELLO), "--task", "go", "--containment", "sealed")

    done = command(*words, "--upstream", upstream)

    assert done.status == 2
    assert done.err.startswith("error[E-USE-052]: ")


def test_a_host_that_was_not_granted_is_refused_and_on_record(command: Command, tier: str) -> None:
    told = says(
        command,
        tier,
        f"{FETCH} https://evil.example/",
        *("--grant", "host=api.example.org"),
        capabilities='hosts = ["api.example.org"]',
    )

    assert "403" in told
    assert "evil.example: 1 refused" in command("show", "@last").out


def test_a_granted_path_is_seen_where_it_lies(command: Command, tier: str) -> None:
    data = command.folder / "data"
    data.mkdir()
    (data / "file").write_text("granted")
    asks = f'read = ["{data}"]'

    told = says(command, tier, f"cat {data}/file", "--grant", f"read={data}", capabilities=asks)

    assert told == "granted"


def test_a_granted_folder_is_written(command: Command, tier: str) -> None:
    data = command.folder / "data"
    data.mkdir()
    asks = f'write = ["{data}"]'

    says(command, tier, f"echo new > {data}/file", "--grant", f"write={data}", capabilities=asks)

    assert (data / "file").read_text() == "new\n"


def test_an_interrupt_ends_it_and_leaves_nothing(command: Command, tier: str) -> None:
    with command.started(
        "run",
        command.capsule(PATIENT),
        "--task",
        "go",
        "--format",
        "jsonl",
        "--workdir",
        "capsule",
        "--containment",
        tier,
    ) as process:
        next(line for line in process.lines() if "working" in line)
        process.popen.send_signal(signal.SIGINT)
        done = process.done()

    assert done.status == 130
    assert processes_below(command.state) == []


def test_explain_shows_the_same_walls(command: Command, tier: str) -> None:
    words = (
        "run",
        command.capsule(HELLO),
        "--task",
        "go",
        "--workdir",
        "capsule",
        "--containment",
        tier,
    )
    command(*words)

    planned = json.loads(command(*words, "--explain", "--json").out)
    found = json.loads(command("show", "@last", "--json").out)

    assert planned["containment"] == tier
    planned["walls"]["axes"]["priv"] = found["walls"]["axes"]["priv"]  # each run has a user
    assert planned["walls"] == found["walls"]


@pytest.mark.parametrize(("tier", "right"), [("sealed", "sys_admin"), ("scoped", "kill")])
def test_a_tier_that_cannot_be_had_is_refused_before_anything_is_made(
    command: Command, tier: str, right: str
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root has rights to be taken away")
    words = ("run", command.capsule(HELLO), "--task", "go", "--containment", tier)

    done = command(*words, before=("setpriv", "--bounding-set", f"-{right}"))

    assert done.status == 6
    assert done.err.startswith(f"error[E-CAP-001]: containment {tier!r} cannot be had here: ")
    assert "hint: " in done.err
    assert json.loads(command("ps", "--all", "--json").out or "[]") == []
