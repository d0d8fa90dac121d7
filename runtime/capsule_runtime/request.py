"""A request to run a capsule, and all that can be said of it before anything is started."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

from msgspec import Struct, field
from msgspec.structs import replace

from capsule_runtime.containing import ADVISORY, Shell, shell_of
from capsule_runtime.core.ceilings import NO_DAY, Ceilings, DayCeilings
from capsule_runtime.core.destinations import parse_upstream
from capsule_runtime.core.doors import DoorPlan
from capsule_runtime.core.env_names import check_names
from capsule_runtime.core.grants import Capabilities, Grants, Policy, Wish
from capsule_runtime.core.model_names import check_model
from capsule_runtime.core.permissions import usual_policy
from capsule_runtime.core.setting import TierClass
from capsule_runtime.core.terms import NO_CEILINGS, Terms, terms_of
from capsule_runtime.core.work import WorkdirMode
from capsule_runtime.errors import UsageError
from capsule_runtime.granting import (
    Standing,
    asked_in,
    on_permission,
    refuse_missing,
    standing_of,
    taken_over,
)
from capsule_runtime.host.capsule import Capsule, bare_capsule, load_capsule
from capsule_runtime.host.clock import new_id
from capsule_runtime.host.state import default_state
from capsule_runtime.lowering import lowered
from capsule_runtime.messages import Message, TextPart
from capsule_runtime.probing import Installed, check_version
from capsule_runtime.workdirs import find_mode, find_workdir, refuse_exposing
from capsule_runtime.yielding import WorkWish, check_writable, why_in_copy

if TYPE_CHECKING:
    from capsule_runtime.core.providers import Provider


class RunRequest(Struct, frozen=True):
    """What to run, on what, and how far to trust it."""

    capsule: Path | None
    """The folder of a capsule; None for a harness as it is, which *driver* names."""
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
    processes: int | None = None
    """Lowers how many processes and threads the manifest lets the run have."""
    containment: str | None = None
    """The tier to run in: sealed, scoped or advisory. None is the strongest there is, from scoped on."""
    grants: tuple[str, ...] = ()
    """What the capsule gets if it asks for it, each as KIND=VALUE, such as read=/usr/share/dict."""
    ceilings: Ceilings = NO_CEILINGS
    """What the run may spend; the lower of these and the manifest's hold."""
    on_permission: Wish | None = None
    """What the harness is told when it asks whether it may use a tool; the strictest wish holds."""
    upstream: str | None = None
    """The one place, as HOST:PORT, that the run reaches at that port of its own loopback."""
    workdir_mode: WorkdirMode | None = None
    """ro, copy or rw; None for what the capsule asks for. Not more than that."""
    record: Path | None = None
    """A new file to which the calls that pass the gateway are recorded."""
    playback: Path | None = None
    """A recording that answers model calls instead of their providers: nothing is called or spent."""
    on_miss: Literal["strict", "lenient"] = "strict"
    """What a call gets that was not recorded: nothing, or the next one of its model."""
    driver: str | None = None
    """Whose harness is run as it is, without a capsule: with every default, and no grants."""

    @classmethod
    def of(
        cls,
        capsule: str | Path | None,
        task: str,
        *,
        driver: str | None = None,
        workdir: str | Path = ".",
        context: str | None = None,
        containment: str | None = None,
        ceilings: Ceilings = NO_CEILINGS,
    ) -> Self:
        """Return the request to give *task*, in plain words, to *capsule* or *driver*'s harness."""
        message = Message(new_id("msg"), (TextPart(task),))
        return cls(
            None if capsule is None else Path(capsule),
            message,
            Path(workdir),
            context,
            containment=containment,
            ceilings=ceilings,
            driver=driver,
        )


class Draft(Struct, frozen=True):
    """A request whose capsule was read; whether it gets what it asks for is not settled."""

    capsule: Capsule
    request: RunRequest
    workdir: Path
    limits: dict[str, float]
    terms: Terms
    workdir_mode: WorkdirMode

    @property
    def asks(self) -> bool:
        """Tell whether it asks for anything: then all of its folder is to be read."""
        return self.capsule.manifest.capabilities != Capabilities()


class Ready(Struct, frozen=True):
    """A request that was checked: the capsule was read, and its limits are known."""

    capsule: Capsule
    request: RunRequest
    workdir: Path
    limits: dict[str, float]
    terms: Terms
    workdir_mode: WorkdirMode
    standing: Standing
    policy: Policy | None
    """What was said of what the harness is told when it asks whether it may use a tool."""
    installed: Installed | None = None
    """The harness as it is here, where its version matters."""
    shell: Shell = ADVISORY
    """How it is contained."""
    why_copy: str = ""
    """Why on a copy, if nobody asked for one."""
    providers: tuple[Provider, ...] = ()
    """Whose models it may call, through the gateway."""

    @property
    def on_permission(self) -> Policy:
        """Return what the harness is told when it asks whether it may use a tool."""
        return self.policy or usual_policy(self.shell.tier)

    @property
    def notes(self) -> tuple[str, ...]:
        """Return what is noted of the launch."""
        version = self.installed.note(self.capsule.described.harness) if self.installed else None
        return tuple(
            filter(None, (version, self.why_copy and f"it works on a copy: {self.why_copy}"))
        )

    @property
    def grants(self) -> Grants:
        """Return what the run gets beyond its own folder and the work directory."""
        return self.standing.grants

    @property
    def env(self) -> dict[str, str]:
        """Return the variables that the caller gives the harness: taken over, and given."""
        return {**taken_over(self.grants), **self.request.env}

    @property
    def model(self) -> str | None:
        """Return the model that is asked for."""
        return self.request.model or self.capsule.manifest.harness.model


def check_request(
    request: RunRequest, state: Path | None = None, day: DayCeilings = NO_DAY
) -> Ready:
    """Read the capsule and check that it can run here as asked.

    Raises:
        UsageError: no capsule, no such work directory, a variable nobody may give, a bad config.toml.
        ManifestError: the manifest is wrong.
        HarnessError: the driver is not installed.
        ContainmentError: the tier cannot be had.
        TrustError: it asks for what nobody granted.
    """
    return grant(read_request(request, day), state)


def read_request(request: RunRequest, day: DayCeilings = NO_DAY) -> Draft:
    """Read the capsule of *request*, and check what needs no grants. Raises as `check_request`."""
    workdir = find_workdir(request.workdir)
    capsule = _capsule(request, workdir)
    check_names(request.env, by_caller=True)
    limits = lowered(capsule.manifest.limits.in_units(), request)
    check_model(request.model or capsule.manifest.harness.model)
    terms = terms_of(
        capsule.manifest.spend.ceilings(),
        request.ceilings,
        day,
        capsule.described.usage,
        is_told_at_end=capsule.described.tells_at_end,
    )
    folder = capsule.folder if request.capsule else None
    mode = find_mode(capsule.manifest.workdir.mode, request.workdir_mode, workdir, folder)
    return Draft(capsule, request, workdir, limits, terms, mode)


def grant(draft: Draft, state: Path | None = None, context: TierClass | None = None) -> Ready:
    """Check that *draft* gets what it asks for, in a *context* of that class. Raises as `check_request`."""
    ready = settle(draft, state := state or default_state())
    if any(item.kind == "tier" for item in ready.standing.missing):
        refuse_missing(ready.capsule, ready.standing)
    ready = contained(ready, state, context)
    refuse_exposing(ready.workdir, ready.workdir_mode, ready.shell.tier, state)
    refuse_missing(ready.capsule, ready.standing)
    return ready


def contained(ready: Ready, state: Path, context: TierClass | None = None) -> Ready:
    """Return *ready* in its tier, on a copy where that takes one. Raises as `check_request`."""
    shell = shell_of(ready.standing, state, context).with_doors(doors_of(ready))
    wish = WorkWish(ready.workdir, ready.workdir_mode, ready.request.workdir_mode)
    check_writable(shell, ready.grants.write, state)
    why_copy = why_in_copy(shell, wish, state)
    copied = {"workdir_mode": "copy", "why_copy": why_copy} if why_copy else {}
    return replace(ready, shell=shell, **copied)


def settle(draft: Draft, state: Path) -> Ready:
    """Find out what *draft* gets; what nobody granted stands in it. Raises as `check_request`."""
    request = draft.request
    standing = standing_of(draft.capsule, request.grants, request.containment, state)
    policy = on_permission(draft.capsule.manifest.interaction.on_permission, request.on_permission)
    ready = Ready(
        draft.capsule,
        request,
        draft.workdir,
        draft.limits,
        draft.terms,
        draft.workdir_mode,
        standing,
        policy,
    )
    if not standing.grants.providers and request.record is request.playback is None:
        return ready
    from capsule_runtime.providing import with_providers  # most runs have none

    return with_providers(ready)


def doors_of(ready: Ready) -> DoorPlan:
    """Return what the run may reach.

    Raises:
        UsageError: E-USE-052, the upstream is no place.
    """
    if ready.request.upstream is not None:
        parse_upstream(ready.request.upstream)
    return DoorPlan(ready.grants.hosts, ready.request.upstream, bool(ready.providers))


def with_version(ready: Ready, state: Path | None) -> Ready:
    """Return *ready* with what is known of its harness's version; may run it, so it takes a while.

    Raises:
        HarnessError: E-HAR-007, it is not a version that the capsule wants.
    """
    return replace(ready, installed=check_version(ready.capsule, ready.env.get("PATH"), state))


def _capsule(request: RunRequest, workdir: Path) -> Capsule:
    """Return the capsule that is meant. One that is no folder may read what it works on, no more."""
    if request.capsule is not None and request.driver is None:
        return load_capsule(request.capsule)
    if request.capsule is None and request.driver is not None:
        return bare_capsule(request.driver, workdir, asked_in(request.grants))
    what = "a capsule or a driver is to be named: one, and not both"
    raise UsageError("E-USE-035", what, "Name the folder of a capsule, or a driver with --driver.")
