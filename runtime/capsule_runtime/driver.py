"""The driver contract: a sans-I/O translator between one harness's dialect and our events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import ClassVar, Literal, Protocol, runtime_checkable

from msgspec import Struct

from capsule_runtime.errors import HarnessError
from capsule_runtime.events import Event
from capsule_runtime.messages import Decision, Exit, Message, Remember, Send

ENTRY_POINT_GROUP = "capsule_runtime.drivers"

UsageScope = Literal["per-call", "cumulative", "final", "none"]


class NoConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The configuration of a driver that has none."""


@dataclass(frozen=True, slots=True)
class Description:
    """What a driver says about its harness before anything is started."""

    harness: str
    command: tuple[str, ...] = ()
    native: tuple[str, ...] = ()
    """Where the real program lies if *command* is a launcher that hides it from signals.

    Patterns like those of a shell, relative to the package that the launcher was installed with;
    the first that fits is started instead. `{machine}` stands for the processor, as `uname -m`
    writes it.
    """
    version_args: tuple[str, ...] = ()
    tested_versions: tuple[str, ...] = ()
    install: str = ""
    """The line that installs it."""
    keys: tuple[str, ...] = ()
    """The environment variables that may hold its key; one of them must be given."""
    interrupt_signal: int | None = None
    streams_text: bool = False
    usage: UsageScope = "none"
    resumes: bool = False
    steers: bool = False
    asks_permission: bool = False
    tells_at_end: bool = False
    """It tells what it did when it is over: nothing can be counted, and stopped, before."""
    loses_tail: bool = False
    """The harness may exit before a 64 KiB pipe has drained, and lose what it last wrote."""


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """All that a driver may build a launch from. Paths are absolute."""

    run: str
    context: str
    message: Message
    command: tuple[str, ...]
    args: tuple[str, ...]
    config: Struct
    home: str
    workdir: str
    tmp: str
    out: str
    agent_path: str
    """The folder that holds `capsule_agent`, for harnesses written in Python."""
    limits: Mapping[str, float]
    """Limits the harness may want to know: seconds and bytes by name."""
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    """What the harness is given by its caller: keys and base URLs, which some want in a file."""
    session: str | None = None
    memory: bytes | None = None
    model: str | None = None
    system_prompt: str | None = None


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """How the harness is started. `argv[0]` may be a bare name, looked up on PATH."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    files: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    """Files written before the start; the names are relative to HOME."""
    stdin: bytes = b""
    keep_stdin: bool = False
    """Whether more is said later: stdin stays open until the terminal event. Else it ends here."""
    collect: tuple[str, ...] = ()
    """Files, relative to HOME, that `ended` wants to read."""


Said = Event | Send | Remember
"""What `Driver.receive` may return."""


class Driver(Protocol):
    """Translate one harness's dialect. One instance per attempt; no I/O, no clock."""

    Config: ClassVar[type[Struct]]
    """What `[harness.config]` of a manifest may hold; `NoConfig` when nothing."""

    def describe(self) -> Description:
        """Say what the harness is and what it can do."""
        ...

    def launch(self, request: LaunchRequest) -> LaunchPlan:
        """Plan the start of the harness on the task.

        Raises:
            HarnessError: this harness cannot do what was asked.
        """
        ...

    def receive(self, lines: bytes) -> Sequence[Said]:
        """Return what complete *lines* stand for; each ends in a newline.

        A line that cannot be read becomes a `Note`; it never raises and never costs a neighbour.
        Of a line that is too long, the first 4 KiB come in its place.
        """
        ...

    def interrupt(self) -> Send | None:
        """Return what asks the harness to stop, or None when only the signal can."""
        ...

    def steer(self, id: str, text: str) -> Send | None:
        """Return what hands *text* to the working harness, or None when it cannot take any."""
        ...

    def answer(self, id: str, decision: Decision) -> Send | None:
        """Return what tells the harness the *decision* on its request *id*."""
        ...

    def ended(self, exit: Exit) -> Sequence[Event]:
        """Return the last events; the very last one is terminal.

        Called once, when output ended without a terminal event.
        """
        ...


@runtime_checkable
class Configurable(Protocol):
    """A driver whose description depends on its configuration."""

    def configure(self, config: Struct) -> None:
        """Take what `[harness.config]` says. Called once, before anything else."""
        ...


@cache  # each search reads the metadata of all that is installed; a refusal is not kept
def find_driver(name: str) -> type[Driver]:
    """Load the one driver *name* asks for.

    Only that entry point is imported: loading runs third-party code in the supervisor's process.

    Raises:
        HarnessError: no distribution, or more than one, registers *name*.
    """
    from importlib.metadata import entry_points  # 20 ms, and most verbs need no driver

    found = entry_points(group=ENTRY_POINT_GROUP, name=name)
    if len(found) != 1:
        raise HarnessError(
            "E-HAR-002",
            f"{'several drivers are' if found else 'no driver is'} named {name!r};"
            f" installed: {', '.join(driver_names())}",
            "Install the distribution that has it, or name one of the installed drivers.",
        )
    (entry_point,) = found
    driver: type[Driver] = entry_point.load()
    return driver


def driver_names() -> list[str]:
    """Return the names of all installed drivers, sorted; none is imported."""
    from importlib.metadata import entry_points

    return sorted({entry.name for entry in entry_points(group=ENTRY_POINT_GROUP)})
