"""A run that tells its secrets in every way it can leaves them nowhere but in its own files."""

from __future__ import annotations

import base64
import json
import os
import signal
import sqlite3
import subprocess
import traceback
from collections.abc import Generator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from capsule_drivers.jsonl import JsonlConfig, JsonlDriver
from capsule_runtime import LaunchPlan, LaunchRequest
from capsule_runtime.core.redactor import Redactor
from capsule_runtime.errors import HarnessError
from capsule_runtime.host.describing import planned_by
from capsule_runtime.host.namespaces import find_namespaces
from capsule_runtime.host.scoping import find_scopes
from capsule_runtime.messages import Message, TextPart
from support.command import PROGRAM, Command, Done

CANARY = 'sk-Canary/"0123"+456789'
GRANTED = "granted-canary-8765"
FAVOURITE = "aquamarine"
"""A variable that is given, and no secret."""

TELLS_ALL = r"""
import base64, json, os, sys, urllib.parse
sys.stdin.readline()
def say(type, **fields):
    print(json.dumps({"type": type, **fields}), flush=True)
for key in (os.environ["DEMO_API_KEY"], os.environ["DEMO_GRANTED"]):
    say("session", id="s-" + key)
    for letter in "it is " + key + ".":
        say("text-delta", text=letter)
        say("usage", model="none", input_tokens=1)
    for half in (key[:9], key[9:]):
        say("thinking-delta", text=half)
        say("activity", text=half)
    say("text", text=key)
    say("thinking", text=key)
    say("tool-call", id=key, name="echo", input={key: [key]})
    say("tool-result", id=key, content=[{"out": key, "err": json.dumps(key)}])
    say("tool-result", id="none", content=key)
    say("note", text=key)
    say("retrying", attempt=1, reason=key)
    say("permission", id=key, tool="echo " + key, input=key)
    print("no line of ours: " + key, flush=True)
    print(json.dumps({"type": "odd", "key": key}), flush=True)
    raw = key.encode()
    for form in (key, json.dumps(key), base64.b64encode(raw).decode(), raw.hex(),
                 base64.b64encode(b"user:" + raw).decode(),
                 urllib.parse.quote(key, safe=""), json.dumps(json.dumps(key))):
        say("activity", text=form)
        print(form, file=sys.stderr, flush=True)
        for letter in form:
            os.write(2, letter.encode())
        os.write(2, b"\n")
print(os.environ["FAVOURITE"], file=sys.stderr, flush=True)
open(os.environ["CAPSULE_OUT"] + "/mine", "w").write(os.environ["DEMO_API_KEY"])
say("activity", text=os.environ["FAVOURITE"])
"""
ENDINGS = {
    "ends": 'say("turn-end", result="all: " + key + " " + os.environ["FAVOURITE"], data={"k": key})',
    "fails": 'say("turn-failed", kind="other", message="all: " + key)',
    "breaks": "raise ValueError(key)",
}
LINGERS = """
say("text-delta", text="told.")
sys.stdin.read()
"""
WAITS = r"""
import json, os, sys
sys.stdin.readline()
print(json.dumps({"type": "text-delta", "text": "ready."}), flush=True)
for line in sys.stdin:
    if "interrupt" in line:
        print(json.dumps({"type": "turn-end", "result": os.environ["DEMO_API_KEY"]}), flush=True)
"""
MANIFEST = """
name = "telling"
[harness]
driver = "jsonl"
command = ["python3", "./agent.py"]
[capabilities]
secrets = ["DEMO_GRANTED"]
"""
GIVEN = {"DEMO_API_KEY": CANARY, "DEMO_GRANTED": GRANTED, "FAVOURITE": FAVOURITE}
WORDS = (
    *("--env", "DEMO_API_KEY", "--env", "FAVOURITE", "--grant", "secret=DEMO_GRANTED"),
    *("--workdir", "work", "--on-permission", "deny"),
)

SHOWS = (
    *(("show",), ("show", "--json"), ("explain",), ("explain", "--json")),
    *(("logs",), ("logs", "--facts", "--json"), ("attach",), ("attach", "--format", "jsonl")),
)


def forms(value: str) -> list[bytes]:
    """Return how *value* could have been left somewhere."""
    raw = value.encode()
    return [
        raw,
        json.dumps(value)[1:-1].encode(),
        json.dumps(json.dumps(value))[3:-3].encode(),
        base64.b64encode(raw).rstrip(b"="),
        raw.hex().encode(),
    ]


def assert_untold(what: str, found: bytes) -> None:
    """Check that neither secret is in what was *found*."""
    told = [form for value in (CANARY, GRANTED) for form in forms(value) if form in found]
    assert not told, f"{what}: {told}"


@pytest.fixture(params=["sealed", "scoped", "advisory"])
def tier(request: pytest.FixtureRequest) -> str:
    """Return a tier; where this machine cannot have it there is nothing to test."""
    name: str = request.param
    why = {"sealed": lambda: find_namespaces().why, "scoped": lambda: find_scopes().why}
    if name in why and (lacking := why[name]()):
        pytest.skip(lacking)
    return name


@pytest.fixture
def command(tmp_path: Path) -> Command:
    command = Command(tmp_path)
    command.env.update(GIVEN)
    (tmp_path / "work").mkdir()
    return command


def telling(command: Command, agent: str) -> str:
    """Return a capsule whose agent is the Python program *agent*."""
    folder = command.folder / "telling"
    folder.mkdir()
    (folder / "capsule.toml").write_text(MANIFEST)
    (folder / "agent.py").write_text(agent)
    return str(folder)


def go(command: Command, capsule: str, tier: str, *words: str) -> Done:
    """Run *capsule* in *tier*, and return what it said."""
    return command(
        *("run", capsule, "--task", f"log in with {CANARY}", "--containment", tier, *WORDS, *words)
    )


def assert_untold_on_disk(command: Command) -> None:
    """Check every file of the state directory, but those that the harness wrote itself."""
    looked_at = set[str]()
    for path in command.state.rglob("*"):
        if path.is_file() and not path.is_symlink() and path.name != "mine":
            assert_untold(str(path), path.read_bytes())
            looked_at.add(path.name)
    assert {"capsule.db", "stderr.log"} <= looked_at


@pytest.mark.parametrize("ending", ENDINGS)
def test_what_a_run_tells_of_its_secrets_is_nowhere(
    command: Command, tier: str, ending: str
) -> None:
    capsule = telling(command, TELLS_ALL + ENDINGS[ending])

    done = go(command, capsule, tier, "--result", "result.json", "--log-level", "debug")

    assert (done.status == 0) == (ending == "ends"), done.err
    assert_untold("run", (done.out + done.err).encode())
    assert_untold("--result", (command.folder / "result.json").read_bytes())
    for words in SHOWS:
        told = command(words[0], "@last", *words[1:])
        assert told.status in (0, done.status), told.err
        assert_untold(" ".join(words), (told.out + told.err).encode())
    assert_untold_on_disk(command)
    [mine] = command.state.glob("runs/*/out/mine")
    assert mine.read_text() == CANARY


def test_what_a_killed_supervisor_leaves_holds_none(command: Command, tier: str) -> None:
    capsule = telling(command, TELLS_ALL + LINGERS)
    words = ("run", capsule, "--task", "go", "--containment", tier, *WORDS, "--format", "jsonl")
    with subprocess.Popen(
        [PROGRAM, *words], cwd=command.folder, env=command.env, stdout=subprocess.PIPE
    ) as running:
        assert running.stdout is not None
        assert any(b'"told."' in line for line in running.stdout)
        running.kill()
        rest = running.stdout.read()

    assert (command.state / "capsule.db-wal").exists()
    assert_untold("stdout", rest)
    assert_untold_on_disk(command)
    shown = command("logs", "@last", "--facts", "--json")
    assert_untold("logs", (shown.out + shown.err).encode())


def test_marks_stand_in_their_place_and_all_else_is_as_it_was(command: Command, tier: str) -> None:
    done = go(command, telling(command, TELLS_ALL + ENDINGS["ends"]), tier, "--format", "jsonl")

    text = "".join(frame["text"] for frame in done.frames if frame["type"] == "text")
    final = done.frames[-1]
    [stderr] = command.state.glob("runs/*/stderr.log")
    [result] = command.state.glob("runs/*/out/result.txt")
    assert text == "it is [redacted DEMO_API_KEY].it is [redacted DEMO_GRANTED]."
    assert final["response"] == f"all: [redacted DEMO_GRANTED] {FAVOURITE}" == result.read_text()
    lines = stderr.read_text().splitlines()
    assert lines[:2] == ["[redacted DEMO_API_KEY]"] * 2
    assert lines[-1] == FAVOURITE


def test_a_plan_shows_no_value(command: Command, tier: str) -> None:
    done = go(command, telling(command, TELLS_ALL), tier, "--explain", "--json")

    plan = json.loads(done.out)
    assert {"DEMO_API_KEY", "DEMO_GRANTED"} <= set(plan["env"])
    assert_untold("--explain", (done.out + done.err).encode())


def processes_of(capsule: subprocess.Popen[bytes]) -> Generator[Path]:
    """Yield the processes that *capsule* began, itself left out: its caller's environment is its own."""
    parents = dict[int, int]()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                stat = (entry / "stat").read_text()
                parents[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])
    ours = {capsule.pid}
    while more := {pid for pid, parent in parents.items() if parent in ours} - ours:
        ours |= more
    yield from (Path("/proc", str(pid)) for pid in ours - {capsule.pid})


def names_of_files(process: Path) -> str:
    """Return what the open files of *process* are called, memory files among them."""
    names = list[str]()
    for fd in (process / "fd").iterdir():
        with suppress(OSError):
            names.append(os.readlink(fd))
    return "\n".join(names)


def test_only_the_harness_has_them_while_it_works(command: Command, tier: str) -> None:
    capsule = telling(command, WAITS)
    words = ("run", capsule, "--task", "go", "--containment", tier, *WORDS, "--format", "jsonl")
    with subprocess.Popen(
        [PROGRAM, *words], cwd=command.folder, env=command.env, stdout=subprocess.PIPE
    ) as running:
        assert running.stdout is not None
        assert any(b'"ready."' in line for line in running.stdout)
        holders = list[str]()
        for process in processes_of(running):
            line = (process / "cmdline").read_bytes()
            assert_untold(f"command line of {line!r}", line)
            assert_untold(f"files of {line!r}", names_of_files(process).encode())
            if CANARY.encode() in (process / "environ").read_bytes():
                holders.append(line.decode())
        running.send_signal(signal.SIGINT)
        rest = running.stdout.read()

    assert [("agent.py" in it) for it in holders] == [True]
    assert_untold("stdout", rest)
    assert_untold_on_disk(command)


def test_words_of_another_process_are_recorded_without_secrets(command: Command) -> None:
    words = ("--task", "go", "--containment", "advisory", *WORDS, "--detach")
    run = command("run", telling(command, WAITS), *words).out.strip()

    steered = command("steer", run, f"use {CANARY}")
    command("interrupt", run)
    command("attach", run)

    shown = command("logs", run, "--facts", "--json")
    assert steered.status == 0, steered.err
    assert "use [redacted DEMO_API_KEY]" in shown.out
    assert_untold("logs", shown.out.encode())
    with closing(sqlite3.connect(command.state / "capsule.db")) as database:
        assert {body for (body,) in database.execute("select body from requests")} == {b""}
    [log] = command.state.glob("runs/*/supervisor.log")
    assert_untold("supervisor.log", log.read_bytes())


class BreaksOverItsKey(JsonlDriver):
    """A driver that cannot make anything of what it was given."""

    def launch(self, request: LaunchRequest) -> LaunchPlan:
        raise LookupError(f"no such key: {request.env['DEMO_API_KEY']}")


def test_a_driver_that_breaks_over_a_secret_does_not_tell(tmp_path: Path) -> None:
    clean = Redactor({"DEMO_API_KEY": CANARY}).text
    message, at = Message("m", (TextPart("go"),)), str(tmp_path)
    request = LaunchRequest(
        "run", "ctx", message, ("true",), (), JsonlConfig(), at, at, at, at, at, {}, GIVEN
    )

    with pytest.raises(
        HarnessError, match=r"LookupError: no such key: \[redacted DEMO_API_KEY\]"
    ) as e:
        planned_by(BreaksOverItsKey(), request, "mine", clean)

    told = "".join(traceback.format_exception(e.value))
    assert "LookupError" in told
    assert_untold("traceback", told.encode())
