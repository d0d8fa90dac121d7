"""What a program's logger and `--log-level` are told, and what nobody is told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from capsule_runtime import FailureKind, RunRequest, TextDelta, TurnFailed, open_supervisor
from capsule_runtime.testing import Silence, UntilInterrupted, recorded_capsule
from support.command import PROGRAM
from support.harness import ESCAPES, agent_capsule
from support.owners import owner
from support.processes import processes_below, wait_gone
from support.supervised import heard, intrude

HOSTILE = ESCAPES + '\n2026 error trouble run="forged"\n::error::x\u2028##[error]y'
FAILS = TurnFailed(FailureKind.OTHER, HOSTILE)


class Recorder:
    """A logger that keeps its lines."""

    def __init__(self, lines: list[dict[str, Any]], context: dict[str, Any]) -> None:
        self.lines = lines
        self._context = context

    def bind(self, **new_values: Any) -> Recorder:
        return Recorder(self.lines, {**self._context, **new_values})

    def debug(self, event: str, **kw: Any) -> None:
        self.lines.append({"event": event, **self._context, **kw})

    info = warning = error = debug

    @property
    def events(self) -> list[str]:
        """Return what happened, in order."""
        return [line["event"] for line in self.lines]


@pytest.fixture
def recorder() -> Recorder:
    return Recorder([], {})


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


def request(capsule: Path) -> RunRequest:
    return RunRequest.of(capsule, "do it", workdir=capsule.parent, containment="advisory")


# A program's own logger


async def test_a_logger_is_told_what_is_on_record(
    tmp_path: Path, state: Path, recorder: Recorder
) -> None:
    capsule = recorded_capsule(tmp_path / "capsule", TextDelta("secret"), UntilInterrupted())
    async with open_supervisor(state, logger=recorder) as supervisor:
        run = await supervisor.start(request(capsule))
        await heard(run, "secret")
        await run.interrupt()
        await run.wait()

    assert recorder.events == [
        "run created",
        "attempt started",
        "harness launched",
        "stop asked",
        "harness exited",
        "tree empty",
        "run ended",
    ]
    assert {line["run"] for line in recorder.lines} == {run.id}
    assert {line["context"] for line in recorder.lines} == {run.context}
    assert recorder.lines[-1]["reason"] == "interrupted"
    assert "secret" not in str(recorder.lines)


async def test_a_logger_is_told_of_requests_and_of_the_kill(
    tmp_path: Path, state: Path, recorder: Recorder
) -> None:
    capsule = recorded_capsule(tmp_path / "capsule", TextDelta("deaf"), Silence())
    async with open_supervisor(state, logger=recorder) as own, open_supervisor(state) as other:
        run = await own.start(request(capsule))
        await heard(run, "deaf")
        await other.get(run.id).kill()

    told = [line for line in recorder.lines if line["event"] == "request heeded"]
    assert told == [
        {"event": "request heeded", "run": run.id, "context": run.context, "verb": "killed"}
    ]
    # Where the owner is slow to hear, its warden has killed before: then there is no kill to start.
    assert recorder.events[3:5] == ["request heeded", "stop asked"]


def ring_nobody(_door: Path) -> bool:
    """Lose the ring, as a machine under pressure may."""
    return True


async def test_a_request_whose_doorbell_was_lost_is_heeded_and_told(
    tmp_path: Path, state: Path, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    capsule = recorded_capsule(tmp_path / "capsule", TextDelta("deaf"), Silence())
    monkeypatch.setattr("capsule_runtime.runs.ring_owner", ring_nobody)
    async with open_supervisor(state, logger=recorder) as own, open_supervisor(state) as other:
        run = await own.start(request(capsule))
        await heard(run, "deaf")
        await other.get(run.id).kill()

    assert "a doorbell was lost" in recorder.events


async def test_a_logger_is_told_of_a_recovery(
    tmp_path: Path, state: Path, recorder: Recorder
) -> None:
    with owner(state, agent_capsule(tmp_path / "capsule", "deaf")) as process:
        process.hear("cannot hear")
        process.kill()
        async with open_supervisor(state, logger=recorder):
            pass

    assert recorder.events == ["run recovered", "run ended"]
    assert {line["run"] for line in recorder.lines} == {process.run}
    assert all(line["context"].startswith("ctx_") for line in recorder.lines)


async def test_a_logger_is_told_of_a_log_that_is_lost(
    tmp_path: Path, state: Path, recorder: Recorder
) -> None:
    capsule = recorded_capsule(tmp_path / "capsule", TextDelta("here"), UntilInterrupted())
    async with open_supervisor(state, logger=recorder) as supervisor:
        run = await supervisor.start(request(capsule))
        await heard(run, "here")
        await intrude(state, run.id)

    assert recorder.lines[-1]["event"] == "trouble"
    assert (recorder.lines[-1]["code"], recorder.lines[-1]["run"]) == ("E-STO-008", run.id)


async def test_a_logger_that_breaks_ends_no_run(tmp_path: Path, state: Path) -> None:
    class Broken(Recorder):
        def info(self, event: str, **kw: Any) -> None:
            raise ValueError(event)

        def bind(self, **new_values: Any) -> Recorder:
            return self

    capsule = recorded_capsule(tmp_path / "capsule", FAILS)
    async with open_supervisor(state, logger=Broken([], {})) as supervisor:
        result = await (await supervisor.start(request(capsule))).wait()

    assert result.reason == "other"


_PROGRAM = """
import logging, sys, anyio
from capsule_runtime import RunRequest, open_supervisor

async def main(capsule):
    async with open_supervisor() as supervisor:
        request = RunRequest.of(capsule, "do it", containment="advisory")
        await (await supervisor.start(request)).wait()

anyio.run(main, sys.argv[1])
assert not logging.root.handlers and not logging.root.manager.loggerDict.keys() & {"capsule_runtime"}
assert not {"structlog", "genai_prices"} & sys.modules.keys()
"""


def test_a_library_says_nothing_unless_it_is_given_a_logger(tmp_path: Path, state: Path) -> None:
    capsule = recorded_capsule(tmp_path / "capsule", FAILS)

    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(capsule)],
        env={**os.environ, "CAPSULE_STATE": str(state), "CAPSULE_LOG_LEVEL": "debug"},
        cwd=tmp_path,
        capture_output=True,
        check=True,
    )

    assert (done.stdout, done.stderr) == (b"", b"")


# The command


def capsule_run(tmp_path: Path, *options: str, **env: str) -> subprocess.CompletedProcess[str]:
    capsule = tmp_path / "capsule"
    if not capsule.exists():
        recorded_capsule(capsule, b"\x1b[31mnot json \xe2\x80\xae\n", FAILS)
    words = ["run", str(capsule), "--task", "do it", "--containment", "advisory", *options]
    return subprocess.run(
        [PROGRAM, *words],
        env={**os.environ, "CAPSULE_STATE": str(tmp_path / "state"), **env},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )


def is_harmless(text: str) -> bool:
    return text.isprintable() and not {"\u202e", "\u2028", "\x9b"} & set(text)


def test_lines_in_json_are_json_and_harmless(tmp_path: Path) -> None:
    done = capsule_run(
        tmp_path, "--format", "quiet", "--log-level", "debug", "--log-format", "json"
    )

    rows = done.stderr.splitlines()
    *lines, notice = [json.loads(row) for row in rows]
    assert [line["event"] for line in lines][:4] == [
        "run created",
        "attempt started",
        "harness launched",
        "note",
    ]
    assert lines[-1]["message"] == HOSTILE
    assert (notice["event"], notice["message"][:10]) == ("notice", "✗ error[E-")
    assert all(is_harmless(row) and "##[" not in row for row in rows)
    assert all(line["run"] and line["context"] and line["at"] and line["level"] for line in lines)


@pytest.mark.parametrize("format", ["quiet", "jsonl"])
def test_beside_data_all_of_stderr_is_json(tmp_path: Path, format: str) -> None:
    words = ("--format", format, "--log-level", "info", "--log-format=json")
    done = capsule_run(tmp_path, *words)

    rows = [json.loads(row) for row in done.stderr.splitlines()]
    assert [row["event"] for row in rows if "run" in row][-1] == "run ended"
    notices = [row["message"] for row in rows if row["event"] == "notice"]
    assert len(notices) == (format == "quiet")  # how it failed; frames say that themselves
    assert all(is_harmless(row) and "##[" not in row for row in done.stderr.splitlines())


def test_an_error_beside_lines_in_json_is_one_too(tmp_path: Path) -> None:
    words = ("--log-level", "info", "--log-format", "json", "--max-turns", "0")
    done = capsule_run(tmp_path, *words)

    (row,) = done.stderr.splitlines()
    assert json.loads(row)["error"]["exit_status"] == done.returncode == 3


def test_lines_for_people_are_harmless_and_one_row_each(tmp_path: Path) -> None:
    done = capsule_run(tmp_path, "--format", "jsonl", "--log-level", "debug")

    rows = done.stderr.splitlines()
    assert [row.split()[1] for row in rows] == ["info"] * 3 + ["debug"] + ["info"] * 3
    assert all(is_harmless(row) and "##[" not in row for row in rows)


def test_the_level_says_how_much_is_told(tmp_path: Path) -> None:
    by_option = capsule_run(tmp_path, "--log-level", "warning", CAPSULE_LOG_LEVEL="debug")
    by_variable = capsule_run(tmp_path, CAPSULE_LOG_LEVEL="info")
    not_at_all = capsule_run(tmp_path)

    assert "run created" not in by_option.stderr + not_at_all.stderr
    assert "run created" in by_variable.stderr
    assert "run created" not in by_variable.stdout


def test_a_level_that_is_none_is_refused(tmp_path: Path) -> None:
    done = capsule_run(tmp_path, CAPSULE_LOG_LEVEL="loud")

    assert done.returncode == 2
    assert "'loud' is not one of" in done.stderr


def test_a_detached_run_tells_its_supervisors_log(tmp_path: Path) -> None:
    done = capsule_run(tmp_path, "--detach", "--log-level", "info", "--log-format", "json")
    run = done.stdout.strip()
    for pid in processes_below(tmp_path):
        wait_gone(pid)
    told = (tmp_path / "state/runs" / run / "supervisor.log").read_text().splitlines()

    assert done.stderr == ""
    assert [json.loads(line)["event"] for line in told][::5] == ["run created", "run ended"]


def test_no_value_of_the_environment_is_told(tmp_path: Path) -> None:
    done = capsule_run(tmp_path, "--env", "TOKEN=hush-hush", "--log-level", "debug")

    assert "run ended" in done.stderr
    assert "hush-hush" not in done.stderr


_COMMAND = """
import sys
from capsule_runtime.cli import main
main(sys.argv[1:])
assert not {"structlog", "genai_prices"} & sys.modules.keys(), "loaded"
"""


@pytest.mark.parametrize("words", ["--version", "run capsule --task x --containment advisory"])
def test_what_is_not_needed_is_not_loaded(tmp_path: Path, words: str) -> None:
    recorded_capsule(tmp_path / "capsule", FAILS)
    done = subprocess.run(
        [sys.executable, "-c", _COMMAND, *words.split()],
        env={**os.environ, "CAPSULE_STATE": str(tmp_path / "state")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert "loaded" not in done.stderr
    assert done.returncode == 0
