"""Words for a working harness, from its program, from another process, and when it takes none."""

from __future__ import annotations

import json
import sys
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from capsule_runtime import RunHandle, RunRequest, TextFrame, UsageError, open_supervisor
from support.command import ADVISORY, Command, Process
from support.drivers import install_drivers
from support.harness import shell_capsule, write_capsule

LISTENING = """
read task
echo '{"type":"text-delta","text":"working"}'
read line
id=$(echo "$line" | sed 's/.*"id":"\\([^"]*\\)".*/\\1/')
echo '{"type":"steered","id":"'"$id"'"}'
text=$(echo "$line" | sed 's/.*"text":"\\([^"]*\\)".*/\\1/')
echo '{"type":"turn-end","result":"'"$text"'"}'
"""
DONE = """
read task
echo '{"type":"turn-end","result":""}'
"""
HELPED = """
import select
import capsule_agent

def work(task, agent):
    while not (steers := agent.steers()):
        select.select([0], [], [])
    return steers[0].text

capsule_agent.serve(work)
"""
HARD_OF_HEARING = """
read task
echo '{"type":"text-delta","text":"working"}'
read line
echo '{"type":"turn-end","result":"what?"}'
"""


def request(capsule: Path) -> RunRequest:
    return RunRequest.of(capsule, "do it", workdir=capsule.parent, containment="advisory")


async def works(run: RunHandle) -> None:
    async for frame in run.frames():
        if isinstance(frame, TextFrame):
            return


def started(command: Command, harness: str) -> AbstractContextManager[Process]:
    return command.started(
        "run", command.capsule(harness), "--task", "go", *ADVISORY, "--format", "jsonl"
    )


# In the program that owns the run


async def test_words_reach_the_harness_and_are_taken(tmp_path: Path) -> None:
    capsule = shell_capsule(tmp_path / "capsule", LISTENING)
    async with open_supervisor(tmp_path / "state") as supervisor:
        run = await supervisor.start(request(capsule))
        id = await run.steer("turn left")
        result = await run.wait()
        record = await run.record()

    assert result.response == "turn left"
    assert record.steers[id].text == "turn left"
    assert record.steers[id].taken_at is not None


async def test_the_helper_for_python_says_what_it_takes(tmp_path: Path) -> None:
    capsule = write_capsule(tmp_path / "capsule", (sys.executable, "-S", "./agent.py"))
    (capsule / "agent.py").write_text(HELPED)
    async with open_supervisor(tmp_path / "state") as supervisor:
        run = await supervisor.start(request(capsule))
        first = await run.steer("one")
        await run.wait()
        steers = (await run.record()).steers

    assert [(it.id, it.taken_at is not None) for it in steers.values()] == [(first, True)]


async def test_words_that_were_only_written_are_not_taken(tmp_path: Path) -> None:
    capsule = shell_capsule(tmp_path / "capsule", HARD_OF_HEARING)
    async with open_supervisor(tmp_path / "state") as supervisor:
        run = await supervisor.start(request(capsule))
        id = await run.steer("turn left")
        await run.wait()
        steer = (await run.record()).steers[id]

    assert (steer.taken_at, steer.refused) == (None, None)


async def test_a_run_that_has_ended_takes_no_words(tmp_path: Path) -> None:
    capsule = shell_capsule(tmp_path / "capsule", DONE)
    async with open_supervisor(tmp_path / "state") as supervisor:
        run = await supervisor.start(request(capsule))
        await run.wait()
        with pytest.raises(UsageError) as caught:
            await run.steer("too late")

    assert caught.value.code == "E-USE-004"
    assert "--context" in caught.value.hint


@pytest.mark.parametrize("text", ["", " \n", "x" * (1024 * 1024 + 1)])
async def test_no_words_or_too_many_are_refused(tmp_path: Path, text: str) -> None:
    capsule = shell_capsule(tmp_path / "capsule", HARD_OF_HEARING)
    async with open_supervisor(tmp_path / "state") as supervisor:
        run = await supervisor.start(request(capsule))
        with pytest.raises(UsageError) as caught:
            await run.steer(text)
        await run.kill()

    assert caught.value.code == "E-USE-006"


async def test_a_driver_that_cannot_steer_refuses_and_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.path", [install_drivers(tmp_path / "distribution"), *sys.path])
    capsule = shell_capsule(tmp_path / "capsule", HARD_OF_HEARING, driver="deaf")
    async with open_supervisor(tmp_path / "state") as supervisor:
        run = await supervisor.start(request(capsule))
        await works(run)
        with pytest.raises(UsageError) as caught:
            await run.steer("turn left")
        await run.interrupt()
        await run.wait()
        record = await run.record()
        (steer,) = record.steers.values()

    assert caught.value.code == "E-USE-005"
    assert record.reason == "interrupted"
    assert steer.refused == "the harness takes no words while it works"


# From another process


def test_capsule_steer_reaches_the_run_of_another_process(tmp_path: Path) -> None:
    command = Command(tmp_path)
    with started(command, LISTENING) as process:
        process.frame("working")
        done = command("steer", "@last", "turn left", "--json")
        process.done()
    result = json.loads(command("show", "@last", "--json").out)
    page = command("show", "@last").out

    assert done.status == 0
    steer = json.loads(done.out)["steer"]
    (told,) = result["steers"]
    assert (told["id"], told["text"], result["response"]) == (steer, "turn left", "turn left")
    assert told["taken_at"] is not None
    assert "taken: turn left" in page


def test_capsule_steer_reads_stdin(tmp_path: Path) -> None:
    command = Command(tmp_path)
    with started(command, LISTENING) as process:
        process.frame("working")
        done = command("steer", "@last", "-", stdin=b"from a pipe")
        process.done()
    result = json.loads(command("show", "@last", "--json").out)

    assert (done.status, done.out) == (0, "")
    assert result["response"] == "from a pipe"


def test_capsule_steer_says_why_not(tmp_path: Path) -> None:
    command = Command(tmp_path)
    command.run(DONE)

    late = command("steer", "@last", "too late")
    empty = command("steer", "@last", "")

    assert (late.status, empty.status) == (2, 2)
    assert "error[E-USE-004]" in late.err and "hint" in late.err
    assert "error[E-USE-006]" in empty.err
