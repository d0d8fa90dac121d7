"""`capsule init`: a capsule to start from."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import click

from capsule_runtime.cli.options import not_empty, to_absolute
from capsule_runtime.cli.output import write_stdout
from capsule_runtime.cli.printer import shown
from capsule_runtime.errors import HostError, UsageError

_SAMPLE = Path(__file__).with_name("sample")
# The agent has another name here, so that no tool takes it for a module of ours.
_FILES = {"capsule.toml": "capsule.toml", "agent.py": "agent.py.txt"}
_NAME_LIMIT = 64


@click.command("init", epilog="Example: capsule init ./my-agent")
@click.argument("name", metavar="[DIR]", default=".", callback=not_empty)
def init_command(name: str) -> int:
    """Write a capsule to start from: a commented capsule.toml and a small agent that works."""
    folder = to_absolute(name)
    for file in _FILES:
        if os.path.lexists(folder / file):
            raise UsageError(
                "E-USE-029", f"{folder / file} is there already", "Name a folder without one."
            )
    try:
        _write_sample(folder)
    except OSError as exc:
        raise HostError("E-HOST-022", f"{folder} cannot be written: {exc.strerror}") from exc
    write_stdout(shown(f"wrote {', '.join(_FILES)}; now try:\n  {_next_step(name)}\n"))
    return 0


def _write_sample(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, source in _FILES.items():
        text = (_SAMPLE / source).read_text(encoding="utf-8")
        with (folder / name).open("x", encoding="utf-8") as file:
            file.write(text.replace('"sample"', f'"{_name_for(folder)}"'))


def _name_for(folder: Path) -> str:
    """Return a name for the capsule that a manifest allows, made from the folder's."""
    name = re.sub(r"[^a-z0-9._-]+", "-", folder.resolve().name.lower()).strip("._-")
    return name[:_NAME_LIMIT] or "sample"


def _next_step(name: str) -> str:
    """Return a command that a shell takes as it is meant."""
    word = shlex.quote(f"./{name}" if name.startswith("-") else name)
    return f"capsule run {word} --task 'look around'"
