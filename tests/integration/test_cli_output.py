"""Output that cannot be written: a full disk is told, a reader who left is no failure."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from support.command import ADVISORY, HELLO, PROGRAM, Command

FORMATS = ("text", "quiet", "jsonl")
TALK = [[], ["--help"], ["--version"], ["store"], ["run", "--help"], ["ps"], ["schema", "frames"]]


@pytest.fixture
def command(tmp_path: Path) -> Command:
    return Command(tmp_path)


def to_full_disk(command: Command, *words: str) -> tuple[int, str]:
    """Run `capsule` with its stdout on a full disk; return its status and what it said."""
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [PROGRAM, *words], stdout=full, stderr=subprocess.PIPE, env=command.env, check=False
        )
    return done.returncode, done.stderr.decode()


def assert_told(status: int, said: str) -> None:
    assert status == 10
    assert "E-HOST-021" in said.splitlines()[-1]
    assert "Traceback" not in said


@pytest.mark.parametrize("format", FORMATS)
def test_a_run_whose_answer_is_lost_says_so_and_is_recorded(command: Command, format: str) -> None:
    words = ["run", command.capsule(HELLO), "--task", "go", *ADVISORY, "--format", format]
    status, said = to_full_disk(command, *words)

    assert_told(status, said)
    assert command("wait", "@last").status in (0, 130)


@pytest.mark.parametrize(
    "words",
    [*(("attach", "@last", "--format", name) for name in FORMATS), ("logs", "@last")],
    ids=[*FORMATS, "logs"],
)
def test_reading_back_what_is_lost_says_so(command: Command, words: tuple[str, ...]) -> None:
    command.run(HELLO)
    status, said = to_full_disk(command, *words)

    assert_told(status, said)


@pytest.mark.parametrize("words", TALK, ids=" ".join)
def test_whatever_is_printed_is_told_to_be_lost(command: Command, words: list[str]) -> None:
    assert_told(*to_full_disk(command, *words))


@pytest.mark.parametrize("words", TALK, ids=" ".join)
def test_a_reader_who_left_is_no_failure(command: Command, words: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [PROGRAM, *words], stdout=writer, stderr=subprocess.PIPE, env=command.env, check=False
    )
    os.close(writer)

    assert (done.returncode, done.stderr) == (0, b"")
