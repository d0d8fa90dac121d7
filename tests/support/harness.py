"""Capsules for tests: a builder, and every way to misbehave with what it must come to."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from capsule_runtime import Outcome, Reason

AGENT = Path(__file__).with_name("misbehaving.py")
ESCAPES = "\x1b[2J\x1b]0;title\x07\x9b31m\u202e\r::error::no\x00"


@dataclass(frozen=True, slots=True)
class Misbehaviour:
    """One verb of `misbehaving.py` and what a run of it must come to."""

    verb: str
    arguments: tuple[str, ...] = ()
    outcome: Outcome = Outcome.COMPLETED
    reason: Reason = Reason.COMPLETED
    message: str = "session ended"
    """The message of the final status, or a part of it."""
    response: str | None = None
    streamed: str | None = None
    """All the text that was streamed."""
    notes: tuple[str, ...] = ()
    """Parts of the notes that the log must hold, in order."""
    limits: Mapping[str, str] = field(default_factory=dict[str, str])
    driver: str = "jsonl"
    killed: int | None = None
    """How many processes the burial must have found beside the harness."""

    def __str__(self) -> str:
        return "-".join((self.verb, self.driver)) if self.driver != "jsonl" else self.verb


_FAILED = Outcome.FAILED
_SHORT_GRACE = {"grace": "200ms"}

MISBEHAVIOURS = (
    Misbehaviour(
        "oversize_line",
        ("1048576",),
        limits={"line": "64KiB"},
        response="after",
        streamed="before",
        notes=(
            "a line of 1.0 MiB was skipped; the limit is 64.0 KiB",
            "a line that is no event",
        ),
    ),
    Misbehaviour(
        "bad_bytes",
        response="after",
        streamed="beforecut \ufffd",
        notes=("a line that is no event",) * 9,
    ),
    Misbehaviour("terminal_escapes", (json.dumps(ESCAPES),), response=ESCAPES, streamed=ESCAPES),
    Misbehaviour("slow_drip", response="dripped", streamed="slow drip é€😀"),
    Misbehaviour("half_a_line", response="no newline", streamed="and "),
    Misbehaviour(
        "silent",
        outcome=Outcome.TIMED_OUT,
        reason=Reason.IDLE,
        message="error[E-RUN-035]: the harness was silent for 0.3s while waiting for the model's",
        limits={"idle.first_token": "300ms", **_SHORT_GRACE},
    ),
    Misbehaviour(
        "stops_itself",
        outcome=Outcome.TIMED_OUT,
        reason=Reason.IDLE,
        message="was silent for 0.3s while streaming an answer",
        streamed="going to sleep",
        limits={"idle.streaming": "300ms", **_SHORT_GRACE},
    ),
    Misbehaviour(
        "exits_without_a_word",
        outcome=_FAILED,
        reason=Reason.INDETERMINATE,
        message="the harness exited with code 0 before it ended its turn",
        streamed="and then",
    ),
    Misbehaviour(
        "exits_3",
        outcome=_FAILED,
        reason=Reason.HARNESS_ERROR,
        message="exited with code 3 before it ended its turn; its stderr ends: no model for me",
    ),
    Misbehaviour(
        "talks_on",
        response="done",
        notes=(
            'after the terminal event: {"type":"text-delta"',
            r"the turn was over, and is ended again: {\"type\":\"turn-end\"",
            r"the turn was over, and is ended again: {\"type\":\"turn-failed\"",
            'after the terminal event: {"type":"permission"',
            "not even json",
        ),
    ),
    Misbehaviour(
        "closes_stdout",
        outcome=_FAILED,
        reason=Reason.HARNESS_ERROR,
        message="was ended by signal 9 before it ended its turn",
        notes=("the harness closed its output and did not leave",),
        streamed="farewell",
        limits=_SHORT_GRACE,
    ),
    Misbehaviour("closes_stdin", response="no need for it"),
    Misbehaviour("leaves_a_child_on_stdout", response="my child has your pipe", killed=1),
    Misbehaviour("leaves_a_child_on_stderr", response="my child has the other pipe", killed=1),
    Misbehaviour("fork_bomb", ("64",), response="boom", killed=63),
    Misbehaviour("runs_away", ("3",), response="catch me"),
    Misbehaviour("leaves_a_daemon", response="it lives on", killed=1),
    Misbehaviour(
        "floods",
        outcome=Outcome.LIMITED,
        reason=Reason.OUTPUT,
        message="the harness wrote more than its limit of 1.0 MiB",
        limits={"output": "1MiB"},
    ),
    Misbehaviour(
        "endless_line",
        outcome=Outcome.LIMITED,
        reason=Reason.OUTPUT,
        message="the harness wrote more than its limit of 1.0 MiB",
        limits={"output": "1MiB", "line": "64KiB"},
        notes=("was skipped; the limit is 64.0 KiB",),
    ),
    Misbehaviour(
        "asks",
        response=json.dumps(
            [["refused", "a", "E-RUN-040"], *(["refused", id, "E-RUN-041"] for id in "bcde")]
        ),
    ),
    Misbehaviour("result_is_a_fifo", response="into a pipe"),
    Misbehaviour(
        "result_is_a_folder",
        response="into a folder",
        notes=("out/result.txt was not written",),
    ),
    Misbehaviour("leaves_at_once", ("700000",), response="fast", driver="tail-losing"),
)
"""The cheap ones: each runs in a moment, on both event loops."""


def write_capsule(
    folder: Path,
    command: Sequence[str],
    *,
    limits: Mapping[str, str | int] | None = None,
    driver: str = "jsonl",
    config: Mapping[str, str] | None = None,
) -> Path:
    """Write the capsule *folder*, whose harness is *command*, and return it."""
    lines = ['name = "test"', "[harness]", f"driver = {json.dumps(driver)}"]
    lines += [f"command = {json.dumps(list(command))}"]
    lines += [f"config.{key} = {json.dumps(value)}" for key, value in (config or {}).items()]
    # The folder that they lie in is often the one that they work on.
    lines += ["[workdir]", 'mode = "rw"']
    lines += ["[limits]", *(f"{key} = {json.dumps(it)}" for key, it in (limits or {}).items())]
    folder.mkdir(parents=True)
    (folder / "capsule.toml").write_text("\n".join(lines) + "\n")
    return folder


def python_command(*arguments: str) -> tuple[str, ...]:
    """Return the command of a harness in Python that starts fast."""
    return (sys.executable, "-I", "-S", *arguments)


def agent_capsule(
    folder: Path,
    verb: str,
    *arguments: str,
    limits: Mapping[str, str | int] | None = None,
    driver: str = "jsonl",
    config: Mapping[str, str] | None = None,
) -> Path:
    """Write the capsule *folder* whose harness is *verb* of `misbehaving.py`, and return it."""
    command = python_command("./agent.py", verb, *arguments)
    write_capsule(folder, command, limits=limits, driver=driver, config=config)
    # Its walls let a harness read its capsule, not the folder that these tests happen to lie in.
    shutil.copy(AGENT, folder / "agent.py")
    return folder


def misbehaving_capsule(folder: Path, it: Misbehaviour) -> Path:
    """Write the capsule *folder* whose harness misbehaves as *it* says, and return it."""
    return agent_capsule(folder, it.verb, *it.arguments, limits=it.limits, driver=it.driver)


def shell_capsule(
    folder: Path,
    script: str,
    *,
    limits: Mapping[str, str | int] | None = None,
    driver: str = "jsonl",
    config: Mapping[str, str] | None = None,
) -> Path:
    """Write the capsule *folder* whose harness is the shell *script*, and return it."""
    write_capsule(folder, ("sh", "./agent.sh"), limits=limits, driver=driver, config=config)
    (folder / "agent.sh").write_text(script)
    return folder
