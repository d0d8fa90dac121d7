"""Runs seen from another process: detach, attach, follow, wait, interrupt, kill, read back."""

from __future__ import annotations

import json
import os
import re
import select
import signal
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from sqlite3 import connect

import pytest

from support.command import ADVISORY, HELLO, ON_CUE, PATIENT, STUBBORN, Command


@pytest.fixture
def command(tmp_path: Path) -> Command:
    return Command(tmp_path)


def detached(command: Command, harness: str, *words: str) -> str:
    """Start a run of *harness* that nobody follows, and return its id."""
    done = command("run", command.capsule(harness), "--task", "go", *ADVISORY, "--detach", *words)
    assert (done.status, done.err) == (0, "")
    assert re.fullmatch(r"run_[0-9a-f]{32}\n", done.out)
    return done.out.strip()


@contextmanager
def on_cue(command: Command, *words: str) -> Generator[tuple[str, Path]]:
    """Start a run that ends when its cue is written to."""
    cue = command.cue()
    run = detached(command, ON_CUE, "--env", f"CUE={cue}", *words)
    # It has read its capsule by then, which a test may write anew.
    with command.started("attach", run, "--format", "jsonl") as follower:
        follower.frame("working")
    yield run, cue


def test_a_detached_run_goes_on_alone(command: Command) -> None:
    with on_cue(command) as (run, cue):
        listed = json.loads(command("ps", "--json").out)
        cue.write_text("now\n")
        waited = command("wait", run)
        listed_after = json.loads(command("ps", "--json").out)

    assert [row["id"] for row in listed] == [run]
    assert (waited.status, waited.out, waited.err) == (0, "", "")
    assert listed_after == []


def test_attach_shows_it_from_the_beginning_and_exits_as_it_ends(command: Command) -> None:
    with on_cue(command) as (run, cue), command.started("attach", run) as process:
        header = process.said(run)
        cue.write_text("now\n")
        done = process.done()

    assert header.startswith(run)
    assert (done.status, done.out) == (0, "done\n")


def test_attach_to_a_run_that_has_ended_reads_it_back(command: Command) -> None:
    first = command.run(HELLO, "--format", "jsonl")
    done = command("attach", "@last", "--format", "jsonl")

    assert done == first


@pytest.mark.parametrize(
    ("verb", "harness", "status"), [("interrupt", PATIENT, 130), ("kill", STUBBORN, 137)]
)
def test_a_second_process_stops_it(command: Command, verb: str, harness: str, status: int) -> None:
    run = detached(command, harness)
    with command.started("attach", run, "--format", "jsonl") as process:
        process.frame("working")
        asked = command(verb, run[:20])
        done = process.done()

    assert asked.status == 0
    assert done.status == status
    assert done.frames[-1]["state"] == "canceled"


def test_kill_returns_once_nothing_is_left(command: Command) -> None:
    run = detached(command, STUBBORN)
    done = command("kill", run, "--json")

    assert json.loads(done.out) == {"run": run, "state": "ended", "outcome": "canceled"}


def test_stopping_a_run_that_has_ended_changes_nothing(command: Command) -> None:
    command.run(HELLO)
    done = command("interrupt", "@last")

    assert done.status == 0
    assert done.err.endswith("has ended: completed\n")


def test_ctrl_c_only_detaches_from_an_attached_run(command: Command) -> None:
    with on_cue(command) as (run, cue), command.started("attach", run) as process:
        process.said(run)
        process.popen.send_signal(signal.SIGINT)
        done = process.done()
        cue.write_text("now\n")
        waited = command("wait", run)

    assert done.status == 130
    assert f"detached; {run} goes on\n" in done.err
    assert waited.status == 0


@pytest.mark.parametrize("words", [("attach", "--format", "jsonl"), ("logs", "-f", "--json")])
def test_more_ctrl_c_while_it_leaves_changes_nothing(
    command: Command, words: tuple[str, ...]
) -> None:
    run = detached(command, STUBBORN)
    with command.started(*words, run) as process:
        process.frame("working")
        done = process.pestered()
    command("kill", run)

    assert done.status == 130
    assert "Traceback" not in done.err


def test_wait_gives_up_in_time(command: Command) -> None:
    with on_cue(command) as (run, cue):
        waited = command("wait", run, "--timeout", "50ms")
        cue.write_text("now\n")
        result = json.loads(command("wait", run, "--json").out)

    assert waited.status == 124
    assert result["outcome"] == "completed"


def test_logs_follow_to_the_end(command: Command) -> None:
    with on_cue(command) as (run, cue), command.started("logs", run, "-f", "--json") as process:
        process.frame("working")
        cue.write_text("now\n")
        done = process.done()

    assert done.status == 0
    assert done.frames[-1]["final"] is True


def test_logs_go_on_after_an_entry(command: Command) -> None:
    command.run(HELLO)
    every = command("logs", "@last", "--facts", "--json").frames
    later = command("logs", "@last", "--facts", "--json", "--after", "4").frames

    assert [entry["seq"] for entry in every] == list(range(1, len(every) + 1))
    assert later == every[4:]


def test_logs_are_one_readable_line_an_entry(command: Command) -> None:
    command.run(HELLO)
    lines = command("logs", "@last", "--facts").out.splitlines()

    assert re.fullmatch(r" +1  \d\d:\d\d:\d\d\.\d{3}  \(created\)  \{.*\}", lines[0])
    assert any(re.search(r'  text  \{"text":"hello ","final":false\}$', line) for line in lines)


def test_show_tells_what_became_of_it(command: Command) -> None:
    command.run(HELLO)
    page = command("show", "@last").out

    assert re.search(r"^outcome +completed$", page, re.MULTILINE)
    assert re.search(r"^answer\n  hello world$", page, re.MULTILINE)
    assert "  result.txt  (11 B)" in page or "  result.txt (11 B)" in page


def test_explain_tells_how_it_was_started(command: Command) -> None:
    command.run(HELLO)
    told = json.loads(command("explain", "@last", "--json").out)

    assert told["attempt"]["driver"] == "jsonl"
    assert told["created"]["manifest"]["name"] == "sample"


def test_ps_lists_ended_runs_when_asked(command: Command) -> None:
    command.run(HELLO)
    table = command("ps", "--all").out.splitlines()

    assert table[0].split() == ["RUN", "STATE", "AGE", "CAPSULE", "CONTEXT", "TASK"]
    assert table[1].split()[1] == "completed"
    assert len(command("ps").out.splitlines()) == 1


@pytest.mark.parametrize("words", [(), ("--format", "jsonl")])
def test_errors_come_out_as_without_detach(command: Command, words: tuple[str, ...]) -> None:
    attached = command("run", "nothing", "--task", "go", *ADVISORY, *words)
    detached = command("run", "nothing", "--task", "go", *ADVISORY, *words, "--detach")

    assert detached == attached
    assert attached.status == 2


def test_a_run_goes_on_whose_caller_dies_before_it_is_recorded(command: Command) -> None:
    command.run(HELLO)
    words = ["run", command.capsule(HELLO), "--task", "go", *ADVISORY, "--detach"]
    with closing(connect(command.state / "capsule.db", isolation_level=None)) as store:
        store.execute("BEGIN IMMEDIATE")  # nothing can be recorded
        with command.started(*words) as caller:
            ended = os.pidfd_open(_child_of(caller.popen.pid))
        store.execute("ROLLBACK")
    _await_end(ended)
    rows = json.loads(command("ps", "--all", "--json").out)
    logs = [command.state / "runs" / row["id"] / "supervisor.log" for row in rows]

    assert [row["outcome"] for row in rows] == ["completed", "completed"]
    assert [log.read_text() for log in logs if log.exists()] == [""]


def test_nobody_waits_for_a_context_on_behalf_of_a_caller_that_died(command: Command) -> None:
    with on_cue(command, "--context", "talk") as (run, cue):
        words = ["run", command.capsule(HELLO), "--task", "go", *ADVISORY, "--context", "talk"]
        with command.started(*words, "--wait", "--detach") as caller:
            ended = os.pidfd_open(_child_of(caller.popen.pid))
        _await_end(ended)
        listed = json.loads(command("ps", "--all", "--json").out)
        cue.write_text("now\n")
        command("wait", run)

    assert [row["id"] for row in listed] == [run]


def test_a_detached_run_keeps_its_result(command: Command) -> None:
    run = detached(command, HELLO, "--result", "result.json")
    command("wait", run)
    with command.started("attach", run) as process:
        process.done()
    result = json.loads((command.folder / "result.json").read_text())

    assert result["run"] == run


def test_a_detached_run_has_no_hold_on_its_callers_terminal(command: Command) -> None:
    run = detached(command, STUBBORN)
    owner = json.loads(command("ps", "--json").out)[0]["owner"]
    command("kill", run)

    assert owner.startswith("sup_")
    assert (command.state / "runs" / run / "supervisor.log").read_text() == ""


def test_a_detached_supervisor_that_is_told_to_terminate_ends_its_run(command: Command) -> None:
    run = detached(command, PATIENT)
    with command.started("attach", run, "--format", "jsonl") as process:
        process.frame("working")
        os.kill(_owner_pid(run), signal.SIGTERM)
        done = process.done()

    assert done.status == 143


def test_a_run_whose_owner_was_killed_is_read_back_whole(command: Command) -> None:
    run = detached(command, STUBBORN)
    with command.started("attach", run, "--format", "jsonl") as process:
        first = process.frame("working")
        os.kill(_owner_pid(run), signal.SIGKILL)
        done = process.done()
    listed = json.loads(command("ps", "--json").out)
    log = command("logs", run, "--json").frames

    assert done.status == 9
    assert done.frames[-1]["final"] is True
    assert listed == []
    assert first in log
    assert log[-1] == done.frames[-1]


def test_ps_does_not_list_a_run_whose_owner_was_killed(command: Command) -> None:
    run = detached(command, STUBBORN)
    os.kill(_owner_pid(run), signal.SIGKILL)

    assert json.loads(command("ps", "--json").out) == []
    assert json.loads(command("show", run, "--json").out)["outcome"] == "lost"


def test_the_store_is_whole_after_all_that(command: Command) -> None:
    command.run(HELLO)
    checked = command("store", "check", "--json")
    rebuilt = command("store", "rebuild", "--json")

    assert (checked.status, json.loads(checked.out)) == (0, [])
    assert json.loads(rebuilt.out) == {"runs": 1}


def _child_of(pid: int) -> int:
    """Wait until the process has a child, and return its pid."""
    children = Path(f"/proc/{pid}/task/{pid}/children")
    while not (found := children.read_text().split()):
        os.sched_yield()
    return int(found[0])


def _await_end(pidfd: int) -> None:
    """Wait until the process has ended, whosever child it is."""
    select.select([pidfd], [], [])
    os.close(pidfd)


def _owner_pid(run: str) -> int:
    """Find the process that has the run's supervisor.log open as its stderr."""
    for stderr in Path("/proc").glob("[0-9]*/fd/2"):
        try:
            if stderr.readlink().parts[-2:] == (run, "supervisor.log"):
                return int(stderr.parts[2])
        except OSError:
            continue
    raise AssertionError(f"no process owns {run}")
