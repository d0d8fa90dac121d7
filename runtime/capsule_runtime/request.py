"""A request to run a capsule, and all that can be said of it before anything is started."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from msgspec import Struct

from capsule_runtime.core.facts import AttemptStarted, Created
from capsule_runtime.core.grants import Capabilities, Grants, Tier
from capsule_runtime.errors import ContainmentError, UsageError
from capsule_runtime.granting import (
    Asks,
    Standing,
    caveats_of_grants,
    refuse_missing,
    standing_of,
    taken_over,
)
from capsule_runtime.host.capsule import Capsule, Launch, Task, load_capsule, plan_launch
from capsule_runtime.host.rows import ContextRow
from capsule_runtime.host.state import default_state, places_of
from capsule_runtime.messages import Message

_WORKDIR_HINT = "Name one with --workdir."
TIER: Tier = "advisory"
"""The tier that runs get: the environment is built from nothing, the tree is buried, no walls."""


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
    containment: str | None = None
    """The weakest tier that will do: sealed, scoped or advisory. None means scoped."""
    grants: tuple[str, ...] = ()
    """What the capsule gets if it asks for it, each as KIND=VALUE, such as read=/usr/share/dict."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A request whose capsule was read; whether it gets what it asks for is not settled."""

    capsule: Capsule
    request: RunRequest
    workdir: Path
    limits: dict[str, float]

    @property
    def asks(self) -> bool:
        """Tell whether it asks for anything: then all of its folder is to be read."""
        return self.capsule.manifest.capabilities != Capabilities()


@dataclass(frozen=True, slots=True)
class Ready:
    """A request that was checked: the capsule was read, and its limits are known."""

    capsule: Capsule
    request: RunRequest
    workdir: Path
    limits: dict[str, float]
    standing: Standing

    @property
    def grants(self) -> Grants:
        """Return what the run gets beyond its own folder and the work directory."""
        return self.standing.grants

    @property
    def env(self) -> dict[str, str]:
        """Return the variables that the caller gives the harness: taken over, and given."""
        return {**taken_over(self.grants), **self.request.env}


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
    asks: Asks
    grants: Grants
    caveats: tuple[str, ...]
    limits: dict[str, float]
    model: str | None
    context: str | None
    usage: str


def check_request(request: RunRequest, state: Path | None = None) -> Ready:
    """Read the capsule and check that it can run here as asked.

    Raises:
        UsageError: no capsule, no such work directory, a bad name, a bad config.toml.
        ManifestError: the manifest is wrong.
        HarnessError: the driver is not installed.
        ContainmentError: the tier cannot be had.
        TrustError: it asks for what nobody granted.
    """
    return grant(read_request(request), state)


def read_request(request: RunRequest) -> Draft:
    """Read the capsule of *request*, and check what needs no grants. Raises as `check_request`."""
    capsule = load_capsule(request.capsule)
    workdir = _workdir(request.workdir)
    limits = capsule.manifest.limits.in_units()
    if request.wall_seconds is not None:
        limits["wall_seconds"] = min(limits["wall_seconds"], request.wall_seconds)
    return Draft(capsule, request, workdir, limits)


def grant(draft: Draft, state: Path | None = None) -> Ready:
    """Check that *draft* gets what it asks for. Raises as `check_request` does."""
    ready = _settled(draft, state)
    _check_tier(ready.standing)
    refuse_missing(ready.capsule, ready.standing)
    return ready


def _settled(draft: Draft, state: Path | None) -> Ready:
    request = draft.request
    standing = standing_of(
        draft.capsule, request.grants, request.containment, state or default_state()
    )
    return Ready(draft.capsule, request, draft.workdir, draft.limits, standing)


def plan_run(request: RunRequest, state: Path | None = None, *, in_any_tier: bool = False) -> Plan:
    """Return what `start` would do with *request*; start nothing and write nothing.

    What nobody granted stands in the plan. With *in_any_tier* a tier that cannot be had is no
    matter.

    Raises:
        CapsuleError: the same that `start` would raise, but for what nobody granted.
    """
    ready = _settled(read_request(request), state)
    if not in_any_tier:
        _check_tier(ready.standing)
    capsule, manifest = ready.capsule, ready.capsule.manifest
    places = places_of(state or default_state(), "RUN", "CONTEXT", ready.workdir)
    task = Task(
        run="RUN",
        context=request.context or "CONTEXT",
        message=request.message,
        args=request.args,
        env=ready.env,
        model=request.model,
        session=None,
        memory=None,
        limits=ready.limits,
    )
    launch = plan_launch(capsule, places, task)
    return Plan(
        capsule=manifest.name,
        version=manifest.version,
        folder=str(capsule.folder),
        driver=manifest.harness.driver,
        argv=launch.argv,
        env={name: _origin(name, ready, launch.plan.env) for name in sorted(launch.env)},
        workdir=str(ready.workdir),
        workdir_mode=manifest.workdir.mode,
        containment=TIER,
        asks=ready.standing.asks,
        grants=ready.grants,
        caveats=caveats_of(ready),
        limits=ready.limits,
        model=request.model or manifest.harness.model,
        context=request.context,
        usage=capsule.driver.describe().usage,
    )


def caveats_of(ready: Ready) -> tuple[str, ...]:
    """Return what a person should know about this run's walls, in plain words."""
    caveats = ["advisory: the harness has your user's rights on files and network"]
    if ready.capsule.manifest.workdir.mode == "ro":
        caveats.append("the capsule promises to only read the work directory; nothing enforces it")
    caveats += caveats_of_grants(ready.standing, ready.env)
    return tuple(caveats)


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
        digest=ready.standing.asks.digest,
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
        grants=ready.grants,
    )


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


def _origin(name: str, ready: Ready, planned: Mapping[str, str]) -> str:
    if name in ready.request.env:
        return "caller"
    if name in ready.env:
        return "secret of the caller" if name in ready.grants.secrets else "caller, as granted"
    return "driver" if name in planned else "runtime"


def _check_tier(standing: Standing) -> None:
    if any(item.kind == "tier" for item in standing.missing):
        return  # what is missing is refused, and named as such
    if standing.floor != TIER:
        raise ContainmentError(
            "E-CAP-001",
            f"containment {standing.floor!r} cannot be had: this version enforces no walls on files or network",
            "Pass --containment advisory to run with your user's own rights.",
        )
