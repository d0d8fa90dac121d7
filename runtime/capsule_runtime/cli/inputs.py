"""From the command line to the task message. stdin is read only when it is asked for."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, cast

import msgspec

from capsule_runtime.core.units import show_size
from capsule_runtime.errors import UsageError
from capsule_runtime.messages import DataPart, Message, Part, TextPart

STDIN = "-"
INPUT_BYTES = 16 * 1024 * 1024
"""How much the task and all that is handed in beside it may hold together."""

_MOST_LEVELS = 100
"""How deep JSON may be nested. Python's readers and writers give up before 1000."""

_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class MessageReader:
    """Put a task message together; it never holds more than it may, and reads stdin once."""

    def __init__(self) -> None:
        self._room = INPUT_BYTES
        self._stdin_is_for = ""

    def read(self, task: str | None, task_file: str | None, inputs: Sequence[str]) -> Message:
        """Return the message of *task* or *task_file*, with *inputs* beside it.

        Raises:
            UsageError: there is no task or there are two, or one of the inputs cannot be taken.
        """
        parts: list[Part] = [TextPart(self._task(task, task_file))]
        parts += [self._input(source) for source in inputs]
        return Message(f"msg_{os.urandom(16).hex()}", tuple(parts))

    def _task(self, task: str | None, task_file: str | None) -> str:
        if (task is None) == (task_file is None):
            many = "no task was given" if task is None else "the task was given twice"
            raise UsageError(
                "E-USE-021",
                many,
                "Give it with --task TEXT, with --task-file FILE, or - for stdin.",
            )
        if task is not None and task != STDIN:
            text = task
        else:
            source = task_file or STDIN
            text = _decoded(self._bytes(source, "the task"), _shown_name(source))
        if not text.strip():
            raise UsageError("E-USE-021", "the task is empty", "Say what is to be done.")
        return text

    def _input(self, source: str) -> Part:
        raw, name = self._bytes(source, "--input"), _shown_name(source)
        # A text may look like a JSON number or word by accident, but hardly like a structure.
        is_json = name.endswith(".json")
        if is_json or raw.lstrip()[:1] in (b"{", b"["):
            try:
                return DataPart(_json_value(raw), name)
            except ValueError as exc:
                if is_json:
                    raise UsageError(
                        "E-USE-023",
                        f"{name} is not JSON we can take: {exc}",
                        "Correct it, or rename it: then it is handed in as text.",
                    ) from exc
        return TextPart(_decoded(raw, name), name)

    def _bytes(self, source: str, what: str) -> bytes:
        try:
            if source != STDIN:
                with Path(source).open("rb") as file:
                    return self.bounded(file, source)
            if self._stdin_is_for:
                raise UsageError(
                    "E-USE-024", f"stdin was asked for twice: for {self._stdin_is_for} and {what}"
                )
            self._stdin_is_for = what
            return self.bounded(sys.stdin.buffer, "stdin")
        except OSError as exc:
            raise UsageError(
                "E-USE-022", f"{source} cannot be read: {exc.strerror}", "Name a readable file."
            ) from exc

    def bounded(self, file: BinaryIO, name: str) -> bytes:
        """Return all of *file*, which is what people call *name*.

        Raises:
            UsageError: E-USE-025, it is more than there is room for.
        """
        raw = file.read(self._room + 1)
        if len(raw) > self._room:
            raise UsageError(
                "E-USE-025",
                f"{name} is too large: the task and its inputs may hold {show_size(INPUT_BYTES)}",
                "Put it into the work directory and name it in the task.",
            )
        self._room -= len(raw)
        return raw


def read_words() -> str:
    """Return the words on stdin.

    Raises:
        UsageError: they are no text, or more than a task may hold.
    """
    return _decoded(MessageReader().bounded(sys.stdin.buffer, STDIN), "stdin")


def parse_variables(given: Sequence[str]) -> Mapping[str, str]:
    """Return the variables of `--env`: NAME=VALUE, or NAME for the caller's own value.

    Raises:
        UsageError: a name is no name, or has no value here.
    """
    variables: dict[str, str] = {}
    for word in given:
        name, has_value, value = word.partition("=")
        if not _VARIABLE_NAME.fullmatch(name):
            raise UsageError("E-USE-026", f"{name!r} cannot be the name of a variable")
        if not has_value:
            if name not in os.environ:
                raise UsageError(
                    "E-USE-026",
                    f"the variable {name} is not set here",
                    f"Export it, or write --env {name}=VALUE.",
                )
            value = os.environ[name]
        variables[name] = value
    return variables


def _decoded(raw: bytes, name: str) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as exc:
        raise UsageError(
            "E-USE-023",
            f"{name} is neither JSON nor UTF-8 text (byte {exc.start})",
            "Put it into the work directory and name it in the task.",
        ) from exc


def _json_value(raw: bytes) -> object:
    """Return the value of *raw*.

    Raises:
        ValueError: it is not JSON, or nested deeper than all readers of a log can be relied on.
    """
    deep = f"it is nested more than {_MOST_LEVELS} deep"
    try:
        value: object = msgspec.json.decode(raw)
    except RecursionError as exc:
        raise ValueError(deep) from exc
    level, levels = [value], 0
    while level := [inner for outer in level for inner in _inside(outer)]:
        levels += 1
        if levels > _MOST_LEVELS:
            raise ValueError(deep)
    return value


def _inside(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return cast("dict[str, object]", value).values()
    return cast("list[object]", value) if isinstance(value, list) else ()


def _shown_name(source: str) -> str:
    return "stdin" if source == STDIN else Path(source).name
