"""An agent that plays what was recorded: a real process, a real driver, and no model."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from capsule_runtime.events import Event
from capsule_runtime.messages import Exit


@dataclass(frozen=True, slots=True)
class Silence:
    """Say nothing for so many seconds; None: for ever, and deaf to an interrupt."""

    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class UntilInterrupted:
    """Say nothing until the run is asked to stop, as the native protocol puts it."""


Step = bytes | Event | Silence | UntilInterrupted
"""What a recorded agent does: write bytes to stdout, say an event of the native protocol, wait."""

_CLEAN_EXIT = Exit(0, None)


def recorded_capsule(
    folder: Path,
    *steps: Step,
    exit: Exit = _CLEAN_EXIT,
    driver: str = "jsonl",
    limits: Mapping[str, str] | None = None,
) -> Path:
    """Write a capsule to the new *folder*, whose agent does *steps* and ends by *exit*; return it.

    A whole stdout that was recorded is one step of bytes, for the *driver* of the harness it came
    from. *exit* is a code or a signal, and what the agent leaves on stderr. *limits* stand in the
    manifest as they are, `{"idle.first_token": "1s"}`.
    """
    folder.mkdir(parents=True)
    script = json.dumps([*map(_told, steps), *_told_exit(exit)])
    (folder / "script.json").write_text(script, encoding="utf-8")
    # The capsule holds all that it needs: it may be copied, packed, or run behind walls.
    (folder / "player.py").write_bytes(Path(__file__).with_name("player.py").read_bytes())
    # TOML takes the strings and lists of JSON as they are.
    command = json.dumps([sys.executable, "-I", "-S", "./player.py", "./script.json"])
    lines = ['name = "recorded"', "[harness]", f"driver = {json.dumps(driver)}"]
    lines += [f"command = {command}", "[limits]"]
    lines += [f"{name} = {json.dumps(value)}" for name, value in (limits or {}).items()]
    (folder / "capsule.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def _told(step: Step) -> tuple[str, object]:
    match step:
        case bytes():
            return "stdout", base64.b64encode(step).decode()
        case Silence(seconds):
            return "silence", seconds
        case UntilInterrupted():
            return "interrupt", None
        case _:
            return "stdout", base64.b64encode(msgspec.json.encode(step) + b"\n").decode()


def _told_exit(exit: Exit) -> list[tuple[str, object]]:
    stderr = base64.b64encode(exit.stderr_tail).decode()
    if exit.signal is not None:
        return [("stderr", stderr), ("signal", exit.signal)]
    return [("stderr", stderr), ("code", exit.code or 0)]
