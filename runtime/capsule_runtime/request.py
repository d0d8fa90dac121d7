"""A request to run a capsule, and all that can be said of it before anything is started."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from msgspec import Struct

from capsule_runtime.containing import walls_of
from capsule_runtime.core.containment import Containment
from capsule_runtime.core.env_names import check_names
from capsule_runtime.core.facts import AttemptStarted, Created
from capsule_runtime.core.grants import Grants
from capsule_runtime.core.sandbox_plan import TIER
from capsule_runtime.errors import ContainmentError, UsageError
from capsule_runtime.host.capsule import Capsule, Launch, Task, load_capsule, plan_launch
from capsule_runtime.host.rows import ContextRow
from capsule_runtime.host.state import default_state, places_of
from capsule_runtime.manifest import MEMORY_BYTES_AT_LEAST
from capsule_runtime.messages import Message

TIERS = ("sealed", "scoped", "advisory")
_WORKDIR_HINT = "Name one with --workdir."


@dataclass(frozen=True, slots=True)
class RunRequest:
    """What to run, on what, and how far to trust it."""

    capsule: Path
    message: Message
    workdir: Path
    context: str | None = None
    """A conversation to go on with; None makes a new one."""
    model: str | None = None
    args: tuple[str, ...] = ()
    """Words added to the harness's own arguments."""
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    wall_seconds: float | None = None
    """Lowers the manifest's wall limit; it never raises it."""
    memory_bytes: int | None = None
    """Lowers the manifest's memory limit."""
    processes: int | None = None
    """Lowers how many processes and threads the manifest lets the run have."""
    containment: str | None = None
    """The weakest tier that will do: sealed, scoped or advisory. None means scoped."""


@dataclass(frozen=True, slots=True)
class Ready:
    """A request that was checked: the capsule was read, and its limits are known."""

    capsule: Capsule
    request: RunRequest
    workdir: Path
    limits: dict[str, float]


class Plan(Struct, frozen=True):
    """What a run would be: everything but its ids. Nothing was started."""

    capsule: str
    version: str
    folder: str
    driver: str
    argv: tuple[str, ...]
    env: dict[str, str]
    """The names of the variables the harness gets, and where each value comes from."""
    workdir: str
    workdir_mode: str
    containment: str
    walls: Containment
    limits: dict[str, float]
    model: str | None
    context: str | None
    usage: str


def check_request(request: RunRequest) -> Ready:
    """Read the capsule and check that it can run here as asked.

    Raises:
        UsageError: no capsule, no such work directory, a bad name, a variable nobody may give.
        ManifestError: the manifest is wrong.
        HarnessError: the driver is not installed.
        ContainmentError: the tier cannot be had.
    """
    capsule = load_capsule(request.capsule)
    _check_tier(request.containment or "scoped")
    check_names(request.env, by_caller=True)
    workdir = _workdir(request.workdir)
    return Ready(capsule, request, workdir, _lowered(capsule.manifest.limits.in_units(), request))


def plan_run(request: RunRequest, state: Path | None = None) -> Plan:
    """Return what `start` would do with *request*; start nothing and write nothing.

    Raises:
        CapsuleError: the same that `start` would raise.
    """
    ready = check_request(request)
    capsule, manifest = ready.capsule, ready.capsule.manifest
    state = state or default_state()
    places = places_of(state, "RUN", "CONTEXT", ready.workdir)
    task = Task(
        run="RUN",
        context=request.context or "CONTEXT",
        message=request.message,
        args=request.args,
        env=request.env,
        model=request.model,
        session=None,
        memory=None,
        limits=ready.limits,
    )
    launch = plan_launch(capsule, places, task)
    walls = walls_of(capsule, places, launch, ready.limits, state=state, grants=Grants())
    return Plan(
        capsule=manifest.name,
        version=manifest.version,
        folder=str(capsule.folder),
        driver=manifest.harness.driver,
        argv=launch.argv,
        env={name: _origin(name, request.env, launch.plan.env) for name in sorted(launch.env)},
        workdir=str(ready.workdir),
        workdir_mode=manifest.workdir.mode,
        containment=TIER,
        walls=walls.report,
        limits=ready.limits,
        model=request.model or manifest.harness.model,
        context=request.context,
        usage=capsule.driver.describe().usage,
    )


def created_run(
    owner: str, ready: Ready, context: ContextRow, seq: int, at: str, run: str
) -> Created:
    """Return the first entry of a run's log."""
    return Created(
        seq,
        at,
        run,
        owner=owner,
        capsule_dir=str(ready.capsule.folder),
        manifest=ready.capsule.manifest,
        context=context.name,
        context_uuid=context.uuid,
        message=ready.request.message,
        workdir=str(ready.workdir),
    )


def attempt_started(
    owner: str, ready: Ready, launch: Launch, session: str | None, seq: int, at: str, run: str
) -> AttemptStarted:
    """Return the entry that announces the launch."""
    harness = ready.capsule.manifest.harness
    return AttemptStarted(
        seq,
        at,
        run,
        attempt=1,
        owner=owner,
        driver=harness.driver,
        argv=launch.argv,
        env_names=tuple(sorted(launch.env)),
        containment=TIER,
        limits=ready.limits,
        model=ready.request.model or harness.model,
        session=session,
    )


def _lowered(limits: dict[str, float], request: RunRequest) -> dict[str, float]:
    """Return *limits*, or what *request* wants to be lower."""
    wishes = {
        "wall_seconds": (request.wall_seconds, 0),
        "memory_bytes": (request.memory_bytes, MEMORY_BYTES_AT_LEAST),
        "processes": (request.processes, 1),
    }
    for name, (wish, least) in wishes.items():
        if wish is not None and wish < least:
            raise UsageError(
                "E-USE-041", f"{name} is {wish:g}, and must be at least {least}", "Ask for more."
            )
    wished = {name: wish for name, (wish, _) in wishes.items() if wish is not None}
    return {name: min(limit, wished.get(name, limit)) for name, limit in limits.items()}


def _workdir(given: Path) -> Path:
    try:
        workdir = Path(os.path.abspath(given))
        is_folder = workdir.is_dir()
    except (OSError, ValueError) as exc:  # the current folder may be gone, a name too long
        raise UsageError(
            "E-USE-011", f"the work directory {given} cannot be used: {exc}", _WORKDIR_HINT
        ) from exc
    if not is_folder:
        raise UsageError(
            "E-USE-011", f"the work directory {workdir} is not a folder", _WORKDIR_HINT
        )
    return workdir


def _origin(name: str, given: Mapping[str, str], planned: Mapping[str, str]) -> str:
    if name in given:
        return "caller"
    return "driver" if name in planned else "runtime"


def _check_tier(floor: str) -> None:
    if floor not in TIERS:
        raise UsageError(
            "E-USE-012", f"{floor!r} is not a containment tier; the tiers are {', '.join(TIERS)}"
        )
    if floor != TIER:
        raise ContainmentError(
            "E-CAP-001",
            f"containment {floor!r} cannot be had: this version builds no walls on the network",
            "Pass --containment advisory to run without them; `capsule doctor` says what holds.",
        )
