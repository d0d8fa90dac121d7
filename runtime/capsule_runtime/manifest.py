"""capsule.toml to `Manifest`. Unknown keys are refused, with the nearest name."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NoReturn, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta, Struct, field

from capsule_runtime.core.units import DURATION_PATTERN, SIZE_PATTERN, parse_duration, parse_size
from capsule_runtime.errors import ManifestError

MANIFEST_NAME = "capsule.toml"

# The look-ahead: `$` alone lets a newline pass.
Name = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$(?!\n)")]
LINE_BYTES_AT_LEAST = 64 * 1024
MEMORY_BYTES_AT_LEAST = 32 * 1024**2
DISK_BYTES_AT_LEAST = 1024**2

Duration = Annotated[str, Meta(pattern=DURATION_PATTERN, description="like 90s, 15m, 1h30m")]
Size = Annotated[str, Meta(pattern=SIZE_PATTERN, description="like 512KiB, 64MiB, 2GiB")]
VersionRange = Annotated[
    str,
    Meta(
        pattern=r"^((==|>=|<=|<|>)\d+(\.\d+)*(,(==|>=|<=|<|>)\d+(\.\d+)*)*)?$(?!\n)",
        description="like >=2.1,<3",
    ),
]


class Harness(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The agent program and how it is started."""

    driver: str
    command: tuple[str, ...] = ()
    """An element that begins with ./ is a path inside the capsule; a bare first one is on PATH."""
    args: tuple[str, ...] = ()
    model: str | None = None
    system_prompt: str | None = None
    system_prompt_file: str | None = None
    version: VersionRange = ""
    config: dict[str, Any] = field(default_factory=dict[str, Any])
    """Whatever the driver understands; the driver checks it."""


class Workdir(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What the capsule wants to do with the work directory."""

    mode: Literal["rw", "ro"] = "rw"


class Idle(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How long the harness may be silent, by what it is doing."""

    first_token: Duration = "5m"
    streaming: Duration = "3m"
    tool: Duration = "30m"
    rate_limited: Duration = "10m"


class Limits(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a run may use before it is stopped."""

    wall: Duration = "1h"
    grace: Duration = "5s"
    output: Size = "256MiB"
    line: Size = "16MiB"
    idle: Idle = field(default_factory=Idle)
    memory: Size = "4GiB"
    processes: Annotated[int, Meta(ge=1, le=1_000_000)] = 512
    """Threads count too."""
    files: Annotated[int, Meta(ge=16, le=1_000_000)] = 4096
    """What each process may have open at a time."""
    disk: Size = "10GiB"
    """By how much the work directory, HOME, TMPDIR and out may grow in all."""
    cpus: Annotated[float, Meta(gt=0, le=4096)] | None = None
    """How many processors' worth of time; without it, all there are."""

    def __post_init__(self) -> None:
        if parse_size(self.memory) < MEMORY_BYTES_AT_LEAST:
            raise ValueError(f"memory is {self.memory}, and must be at least 32MiB")
        if parse_size(self.disk) < DISK_BYTES_AT_LEAST:
            raise ValueError(f"disk is {self.disk}, and must be at least 1MiB")
        if parse_size(self.line) < LINE_BYTES_AT_LEAST:
            raise ValueError(f"line is {self.line}, and must be at least 64KiB, the size of a read")
        times = {"wall": self.wall, **msgspec.structs.asdict(self.idle)}
        for name, duration in times.items():
            if parse_duration(duration) <= 0:
                raise ValueError(f"{name} is {duration}, and must be more than nothing")

    def in_units(self) -> dict[str, float]:
        """Return every limit by name, in seconds and bytes."""
        return {
            "wall_seconds": parse_duration(self.wall),
            "grace_seconds": parse_duration(self.grace),
            "output_bytes": parse_size(self.output),
            "line_bytes": parse_size(self.line),
            "memory_bytes": parse_size(self.memory),
            "processes": self.processes,
            "files": self.files,
            "disk_bytes": parse_size(self.disk),
            **({} if self.cpus is None else {"cpus": self.cpus}),
            "idle_first_token_seconds": parse_duration(self.idle.first_token),
            "idle_streaming_seconds": parse_duration(self.idle.streaming),
            "idle_tool_seconds": parse_duration(self.idle.tool),
            "idle_rate_limited_seconds": parse_duration(self.idle.rate_limited),
        }


class Manifest(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A capsule, as its author describes it."""

    name: Name
    harness: Harness
    version: str = "0.0.0"
    description: str = ""
    workdir: Workdir = field(default_factory=Workdir)
    limits: Limits = field(default_factory=Limits)


def parse_manifest(text: str, path: str) -> Manifest:
    """Read the manifest *text* of the file *path*.

    Raises:
        ManifestError: it is not TOML, or says what no manifest may say; names file, line and key.
    """
    try:
        raw = tomllib.loads(text)
    except (ValueError, RecursionError) as exc:  # also numbers and nesting beyond all measure
        raise ManifestError(
            "E-MAN-001", f"{path}: {exc}", "See `capsule init` for a sample."
        ) from exc
    try:
        return msgspec.convert(raw, Manifest)
    except msgspec.ValidationError as exc:
        _refuse(str(exc), raw, text, path, _TABLES)


def convert_config(config: dict[str, Any], kind: type[Struct], path: str, text: str = "") -> Struct:
    """Check `[harness.config]` against what the driver understands.

    Raises:
        ManifestError: a key is unknown or a value has the wrong type.
    """
    try:
        return msgspec.convert(config, kind)
    except msgspec.ValidationError as exc:
        problem = str(exc) if " - at `$" in str(exc) else f"{exc} - at `$`"
        raw = {"harness": {"config": config}}
        problem = problem.replace("`$", "`$.harness.config")
        _refuse(problem, raw, text, path, {"harness.config": kind})


_Tables = Mapping[str, type[Struct]]
_TABLES: _Tables = {
    "": Manifest,
    "harness": Harness,
    "workdir": Workdir,
    "limits": Limits,
    "limits.idle": Idle,
}


def _refuse(problem: str, raw: dict[str, Any], text: str, path: str, tables: _Tables) -> NoReturn:
    """Say *problem*, which msgspec found in *raw*, in terms of the file."""
    what, _, where = problem.partition(" - at ")
    table = where.strip("`").removeprefix("$").removeprefix(".")
    if unknown := re.match(r"Object contains unknown field `(.+)`", what):
        name, known = unknown[1], tables[table].__struct_fields__ if table in tables else ()
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"Did you mean {near[0]!r}?" if near else f"Known here: {', '.join(known)}."
        key = f"{table}.{name}" if table else name
        raise ManifestError("E-MAN-002", f"{_place(text, path, key)}: unknown key {key!r}", hint)
    if missing := re.match(r"Object missing required field `(.+)`", what):
        key = f"{table}.{missing[1]}" if table else missing[1]
        hint = f"Begin a table [{key}]." if key in tables else f"Write {missing[1]} = … there."
        raise ManifestError("E-MAN-003", f"{_place(text, path, table)}: {key!r} is missing", hint)
    what = "it is not written right" if "matching regex" in what else what
    given = f"{table} = {_value_at(raw, table)!r}"
    raise ManifestError(
        "E-MAN-004", f"{_place(text, path, table)}: {given}: {what}", _hint_for(table, tables)
    )


def _value_at(raw: dict[str, Any], key: str) -> object:
    """Return the value at *key*, such as `limits.wall` or `harness.command[1]`."""
    value: Any = raw
    for part in re.findall(r"[^.\[\]]+", key):
        value = value[int(part) if part.isdecimal() else part]
    return value


def _hint_for(key: str, tables: _Tables) -> str:
    table, _, name = key.rpartition(".")
    kind = get_type_hints(tables[table]).get(name) if table in tables else None
    if get_origin(kind) is Literal:
        return f"One of {', '.join(map(repr, get_args(kind)))}."
    if table == "limits.idle" or key in ("limits.wall", "limits.grace"):
        return 'Durations are written like "90s", "15m" or "1h30m".'
    if key in ("limits.output", "limits.line", "limits.memory", "limits.disk"):
        return 'Sizes are written like "512KiB", "64MiB" or "2GiB".'
    if key == "name":
        return "A name has up to 64 lower-case letters, digits, dots, dashes and underscores."
    if key == "harness.version":
        return 'A range of versions is written like ">=2.1,<3".'
    return f"`capsule schema manifest` describes {name or 'every key'}."


def _place(text: str, path: str, key: str) -> str:
    """Return *path* and the line of *key*, or else of the nearest table that holds it."""
    key = re.sub(r"\[.*?\]", "", key)
    while (line := _line_of(text, key)) is None and key:
        key = key.rpartition(".")[0]
    return f"{path}:{line}" if line else path


def _line_of(text: str, key: str) -> int | None:
    """Find the line that sets *key*, a dotted path, or else the one that opens its table."""
    table, opened = "", None if key or not text else 1
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*\[\[?\s*([^\]]+?)\s*\]", line):
            table = re.sub(r"\s*\.\s*|\"|'", lambda m: "." if "." in m[0] else "", header[1])
        elif entry := re.match(r"\s*([\w.\"'-]+)\s*=", line):
            found = f"{table}.{entry[1]}".strip(".").replace('"', "").replace("'", "")
            if found == key:
                return number
        if table == key and opened is None:
            opened = number
    return opened
