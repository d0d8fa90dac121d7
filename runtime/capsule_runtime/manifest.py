"""capsule.toml to `Manifest`. Unknown keys are refused, with the nearest name."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct, field

from capsule_runtime.core.capability_forms import troubles
from capsule_runtime.core.ceilings import Ceilings
from capsule_runtime.core.grants import Capabilities, Wish
from capsule_runtime.core.money import parse_usd
from capsule_runtime.core.units import DURATION_PATTERN, SIZE_PATTERN, parse_duration, parse_size
from capsule_runtime.errors import ManifestError
from capsule_runtime.toml_file import Codes, Tables, TomlFile

MANIFEST_NAME = "capsule.toml"

# The look-ahead: `$` alone lets a newline pass.
Name = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$(?!\n)")]
LINE_BYTES_AT_LEAST = 64 * 1024
PROCESSES_AT_LEAST = 2
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

    mode: Literal["ro", "copy", "rw"] | None = None
    """In place, on a copy whose changes the caller applies later, or only to read; by default rw,
    or copy where the capsule itself lies in it."""
    copies_at_most: Size = "10GiB"
    """A larger work directory is not copied."""


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
    processes: Annotated[int, Meta(ge=PROCESSES_AT_LEAST, le=1_000_000)] = 512
    """Threads count too, and while the root of a sealed run is entered so does what waits in it."""
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


Allowance = Annotated[int, Meta(ge=0, le=2**53)]


class Spending(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a run may spend before it is stopped. The lower of this and the caller's holds."""

    usd: str | int | float | None = None
    """Dollars, to six decimals: "1.50", 1.5 or 2."""
    tokens: Allowance | None = None
    """Read and written, cached ones included."""
    turns: Allowance | None = None
    """Answers of the model."""
    tool_calls: Allowance | None = None
    on_unmetered: Literal["refuse", "allow"] = "refuse"
    """What becomes of a ceiling on usd or tokens that nobody can hold."""

    def __post_init__(self) -> None:
        if self.usd is not None:
            parse_usd(self.usd)

    def ceilings(self) -> Ceilings:
        """Return the ceilings, dollars in micro-dollars."""
        usd = None if self.usd is None else parse_usd(self.usd)
        return Ceilings(usd, self.tokens, self.turns, self.tool_calls, self.on_unmetered)


class Interaction(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How the run deals with a person."""

    on_permission: Wish | None = None
    """What the harness is told when it asks whether it may use a tool. The strictest wish holds."""


class Manifest(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A capsule, as its author describes it."""

    name: Name
    harness: Harness
    version: str = "0.0.0"
    description: str = ""
    workdir: Workdir = field(default_factory=Workdir)
    limits: Limits = field(default_factory=Limits)
    capabilities: Capabilities = field(default_factory=Capabilities)
    """What the capsule needs beyond its own folder and the work directory; the caller grants it."""
    spend: Spending = field(default_factory=Spending)
    interaction: Interaction = field(default_factory=Interaction)


def parse_manifest(text: str, path: str) -> Manifest:
    """Read the manifest *text* of the file *path*.

    Raises:
        ManifestError: it is not TOML, or says what no manifest may say; names file, line and key.
    """
    file = _file(text, path, _TABLES)
    manifest = file.parse(Manifest)
    for trouble in troubles(manifest.capabilities, of_manifest=True):
        file.refuse_value(("capabilities", *trouble.key), trouble.value, trouble.what)
    return manifest


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
        _file(text, path, {"harness.config": kind}).refuse(problem, raw)


_CODES = Codes(ManifestError, "E-MAN-001", "E-MAN-002", "E-MAN-003", "E-MAN-004")
_TABLES: Tables = {
    "": Manifest,
    "harness": Harness,
    "workdir": Workdir,
    "limits": Limits,
    "limits.idle": Idle,
    "capabilities": Capabilities,
    "spend": Spending,
    "interaction": Interaction,
}


def _file(text: str, path: str, tables: Tables) -> TomlFile:
    return TomlFile(text, path, tables, _CODES, _hint_for, "See `capsule init` for a sample.")


def _hint_for(key: str) -> str:
    table, _, name = key.rpartition(".")
    if table == "limits.idle" or key in ("limits.wall", "limits.grace"):
        return 'Durations are written like "90s", "15m" or "1h30m".'
    if key in (
        *("limits.output", "limits.line", "limits.memory", "limits.disk"),
        "workdir.copies_at_most",
    ):
        return 'Sizes are written like "512KiB", "64MiB" or "2GiB".'
    if table == "capabilities":
        return "`capsule explain E-TRU-001` says what a capsule may ask for, and how."
    if key in ("spend", "spend.usd"):
        return 'Dollars are written like "1.50", 1.5 or 2.'
    if key == "name":
        return "A name has up to 64 lower-case letters, digits, dots, dashes and underscores."
    if key == "harness.version":
        return 'A range of versions is written like ">=2.1,<3".'
    return f"`capsule schema manifest` describes {name or 'every key'}."
