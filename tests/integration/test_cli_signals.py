"""What stops `capsule run`, and that the run reaches its recorded end within seven seconds."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from signal import Signals

import pytest

from support.command import ADVISORY, ON_CUE, PATIENT, PROGRAM, STUBBORN, Command, Done, Process

WINDOW_SECONDS = 7.0
FLOOD = """
read task
i=0
while [ $i -lt 3000 ]; do
  echo '{"type":"text-delta","text":"'%01000d'"}'
  i=$((i+1))
done
echo '{"type":"turn-end","result":"done"}'
"""


@pytest.fixture
def command(tmp_path: Path) -> Command:
    return Command(tmp_path)


@contextmanager
def working(
    command: Command, harness: str, *words: str, grace: str = "300ms"
) -> Generator[Process]:
    """Start a run of *harness* and wait until it works."""
    capsule = command.capsule(harness, grace=grace)
    whole = ["run", capsule, "--task", "go", *ADVISORY, "--format", "jsonl"]
    with command.started(*whole, *words) as process:
        process.frame("working")
        yield process


def outcome(command: Command) -> tuple[str, str]:
    """Return outcome and reason of the last run."""
    result = json.loads(command("show", "@last", "--json").out)
    return result["outcome"], result["reason"]


def send(process: Process, *signals: Signals) -> Done:
    """Send *signals*, the second once the first was heeded; return what came of it."""
    started = time.monotonic()
    for number in signals:
        process.popen.send_signal(number)
        process.said("run")
    done = process.done()
    assert time.monotonic() - started < WINDOW_SECONDS
    return done


@pytest.mark.parametrize(
    ("number", "status", "reason"),
    [
        (signal.SIGINT, 130, "interrupted"),
        (signal.SIGTERM, 143, "terminated"),
        (signal.SIGHUP, 129, "hang-up"),
    ],
)
@pytest.mark.parametrize("harness", [PATIENT, STUBBORN], ids=["patient", "stubborn"])
def test_a_signal_stops_the_run(
    command: Command, number: Signals, status: int, reason: str, harness: str
) -> None:
    with working(command, harness) as process:
        done = send(process, number)

    assert done.status == status
    assert outcome(command) == ("canceled", reason)
    assert done.frames[-1]["final"] is True


def test_no_manifest_can_keep_a_run_past_the_window(command: Command) -> None:
    with working(command, STUBBORN, grace="1h") as process:
        done = send(process, signal.SIGINT)

    assert done.status == 130
    assert "was killed" in done.frames[-1]["message"]


def test_the_second_interrupt_kills(command: Command) -> None:
    started = time.monotonic()
    with working(command, STUBBORN, grace="1h") as process:
        done = send(process, signal.SIGINT, signal.SIGINT)

    assert done.status == 137
    assert outcome(command) == ("canceled", "killed")
    assert time.monotonic() - started < 4.0


def test_interrupts_up_to_the_very_end_change_nothing_any_more(command: Command) -> None:
    with working(command, STUBBORN, grace="1h") as process:
        done = process.pestered()

    assert done.status == 137
    assert "Traceback" not in done.err
    assert outcome(command) == ("canceled", "killed")


@pytest.mark.parametrize("module", ["click", "anyio"])
def test_an_interrupt_while_we_load_is_quiet(command: Command, module: str) -> None:
    code = (
        "import os, signal, sys\n"
        "def interrupt(event, args):\n"
        f"    if event == 'import' and args[0] == {module!r}:\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.addaudithook(interrupt)\n"
        "from capsule_runtime.cli import main\n"
        "sys.exit(main())"
    )
    given = [sys.executable, "-c", code, "ps"]
    done = subprocess.run(given, env=command.env, capture_output=True, check=False)

    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


def test_an_interrupt_after_another_stop_kills(command: Command) -> None:
    with working(command, STUBBORN, grace="1h") as process:
        done = send(process, signal.SIGTERM, signal.SIGINT)

    assert done.status == 137
    assert outcome(command) == ("canceled", "killed")


def test_the_notice_says_how_to_kill(command: Command) -> None:
    with working(command, PATIENT) as process:
        process.popen.send_signal(signal.SIGINT)
        notice = process.said("interrupt")
        process.done()

    assert notice == "interrupting the run; Ctrl-C again kills it\n"


def test_a_result_is_written_for_an_interrupted_run(command: Command) -> None:
    with working(command, PATIENT, "--result", "result.json") as process:
        send(process, signal.SIGINT)
    result = json.loads((command.folder / "result.json").read_text())

    assert (result["outcome"], result["exit_code"]) == ("canceled", 130)


@pytest.mark.parametrize("format", ["text", "quiet", "jsonl"])
def test_a_reader_that_leaves_interrupts_a_run_that_has_nothing_to_say(
    command: Command, format: str
) -> None:
    whole = ["run", command.capsule(STUBBORN), "--task", "go", *ADVISORY, "--format", format]
    with command.started(*whole) as process:
        assert process.popen.stdout is not None
        process.popen.stdout.close()
        status = process.popen.wait()

    assert status == 130
    assert outcome(command) == ("canceled", "interrupted")


def test_nobody_reading_interrupts_the_run(command: Command) -> None:
    words = ["run", command.capsule(PATIENT), "--task", "go", *ADVISORY, "--format", "jsonl"]
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [PROGRAM, *words], stdout=writer, stderr=subprocess.DEVNULL, env=command.env, check=False
    )
    os.close(writer)

    assert done.returncode == 130
    assert outcome(command) == ("canceled", "interrupted")


def test_ignored_signals_stay_ignored(command: Command) -> None:
    """`nohup` and a shell's background jobs mean it."""
    cue = command.cue()
    script = f"trap '' HUP INT; exec {PROGRAM} \"$@\""
    words = ["run", command.capsule(ON_CUE), "--task", "go", *ADVISORY, "--format", "jsonl"]
    with subprocess.Popen(
        ["sh", "-c", script, "sh", *words, "--env", f"CUE={cue}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=command.env,
        bufsize=0,
    ) as popen:
        process = Process(popen)
        process.frame("working")
        popen.send_signal(signal.SIGHUP)
        popen.send_signal(signal.SIGINT)
        cue.write_text("now\n")
        done = process.done()

    assert done.status == 0


def test_a_stuck_reader_does_not_stop_the_run(command: Command) -> None:
    harness = FLOOD.replace("%01000d", "x" * 1000)
    whole = ["run", command.capsule(harness), "--task", "go", *ADVISORY, "--format", "jsonl"]
    with command.started(*whole) as process:
        waited = command("wait", "@last") if process.frame("inference") else None
        done = process.done()

    assert waited is not None and waited.status == 0
    assert done.status == 0
    assert done.frames[-1]["final"] is True
    assert len(done.frames) > 3000


def test_a_stuck_reader_does_not_keep_a_stopped_run(command: Command) -> None:
    harness = FLOOD.replace("%01000d", "x" * 1000)
    whole = ["run", command.capsule(harness), "--task", "go", *ADVISORY, "--format", "jsonl"]
    with command.started(*whole) as process:
        process.frame("inference")
        command("wait", "@last")
        started = time.monotonic()
        process.popen.send_signal(signal.SIGINT)
        status = process.popen.wait()

    assert status == 0  # it had completed before anybody interrupted it
    assert time.monotonic() - started < WINDOW_SECONDS


def test_a_signal_while_waiting_for_a_context_gives_up(command: Command) -> None:
    cue = command.cue()
    whole = ["run", command.capsule(ON_CUE), "--task", "go", *ADVISORY]
    words = ["--context", "talk", "--env", f"CUE={cue}"]
    with command.started(*whole, *words, "--format", "jsonl") as process:
        process.frame("working")
        with command.started(*whole, *words, "--wait") as waiting:
            waiting.said("waiting for")
            waiting.popen.send_signal(signal.SIGTERM)
            gave_up = waiting.done()
        cue.write_text("now\n")
        done = process.done()

    assert gave_up.status == 143
    assert done.status == 0
