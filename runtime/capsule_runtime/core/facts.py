"""What the log knows beside the frames. One JSON object a line, tagged by `fact`.

Facts that announce an act (`attempt-started`, `stop-asked`, `ended`) are committed before it.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from capsule_runtime.core.call_facts import CallEnded, CallRefused, CallStarted
from capsule_runtime.core.ceilings import Ceilings, DayCeilings
from capsule_runtime.core.containment import Containment
from capsule_runtime.core.grants import Grants, Policy
from capsule_runtime.core.ledger import Settled, Spend
from capsule_runtime.core.network_facts import Egress, EgressMore
from capsule_runtime.core.outcome import Outcome, Reason
from capsule_runtime.core.setting import Setting
from capsule_runtime.core.work import WorkdirMode
from capsule_runtime.core.work_facts import Applied, Collected, Copied
from capsule_runtime.events import Event
from capsule_runtime.manifest import Manifest
from capsule_runtime.messages import Message, Refused


class Created(Struct, frozen=True, tag_field="fact", tag="created", omit_defaults=True):
    """The run exists. A later attempt uses this manifest, not the file."""

    seq: int
    at: str
    run: str
    owner: str
    capsule_dir: str
    manifest: Manifest
    context: str
    context_uuid: str
    message: Message
    workdir: str
    digest: str | None = None
    """Of the capsule's folder before the launch, if the capsule asks for anything."""
    workdir_mode: WorkdirMode | None = None
    """How the harness has the work directory; None in logs of before it was written down."""
    why_copy: str = ""
    """Why it works on a copy that nobody asked for."""
    setting: Setting = Setting()
    """Where the harness finds itself, which is the same in all runs of the context."""


class AttemptStarted(
    Struct, frozen=True, tag_field="fact", tag="attempt-started", omit_defaults=True
):
    """A launch of the harness is about to happen. *limits* are seconds and bytes by name.

    *ledger* is where the account comes from, *spend* when it is known.
    """

    seq: int
    at: str
    run: str
    attempt: int
    owner: str
    driver: str
    argv: tuple[str, ...]
    env_names: tuple[str, ...]
    containment: str
    limits: dict[str, float]
    model: str | None = None
    session: str | None = None
    grants: Grants = Grants()
    """What it gets beyond the capsule's folder and the work directory; names, never values."""
    ledger: Literal["driver", "gateway"] | None = None
    spend: Spend | None = None
    ceilings: Ceilings | None = None
    day: DayCeilings | None = None
    on_permission: Policy | None = None
    version: str | None = None
    """Of the harness, where somebody asked."""


class Contained(Struct, frozen=True, tag_field="fact", tag="contained"):
    """The harness is behind these walls: it reported them, and they are as planned."""

    seq: int
    at: str
    run: str
    containment: Containment


class Launched(Struct, frozen=True, tag_field="fact", tag="launched"):
    """The harness's process exists."""

    seq: int
    at: str
    run: str
    pid: int


class Said(Struct, frozen=True, tag_field="fact", tag="said"):
    """The harness said something that is not a frame, or not only one."""

    seq: int
    at: str
    run: str
    event: Event


class Remembered(Struct, frozen=True, tag_field="fact", tag="remembered"):
    """The driver keeps *data* for the next launch in this context."""

    seq: int
    at: str
    run: str
    data: bytes


class Noted(Struct, frozen=True, tag_field="fact", tag="noted"):
    """The runtime saw something worth a line."""

    seq: int
    at: str
    run: str
    text: str


class StopAsked(Struct, frozen=True, tag_field="fact", tag="stop-asked"):
    """Somebody, or a limit, asked the run to stop. The first one on record decides the outcome."""

    seq: int
    at: str
    run: str
    reason: Reason
    message: str


class SteerAsked(Struct, frozen=True, tag_field="fact", tag="steer-asked", omit_defaults=True):
    """Somebody has words for the working harness. *refused* says why it was not given them."""

    seq: int
    at: str
    run: str
    id: str
    text: str
    refused: Refused | None = None


class PermissionDecided(
    Struct, frozen=True, tag_field="fact", tag="permission-decided", omit_defaults=True
):
    """What the harness was told that asked by *id* whether it may use *tool*, and by what policy."""

    seq: int
    at: str
    run: str
    id: str
    tool: str
    allowed: bool
    policy: Policy


class KillStarted(Struct, frozen=True, tag_field="fact", tag="kill-started"):
    """The stop ladder reached the kill."""

    seq: int
    at: str
    run: str


class Exited(Struct, frozen=True, tag_field="fact", tag="exited"):
    """The harness's own process is gone."""

    seq: int
    at: str
    run: str
    code: int | None
    signal: int | None


class TreeEmpty(Struct, frozen=True, tag_field="fact", tag="tree-empty"):
    """The tree was buried: *killed* were found beside the harness, *left* must be 0.

    *left* is null when nothing could be proved.
    """

    seq: int
    at: str
    run: str
    killed: int
    left: int | None
    burial_ms: int


class Recovered(Struct, frozen=True, tag_field="fact", tag="recovered"):
    """The owner died; *by* is the supervisor that writes the end."""

    seq: int
    at: str
    run: str
    by: str


class SpendClosed(Struct, frozen=True, tag_field="fact", tag="spend-closed"):
    """Nothing more is entered in the account of the run."""

    seq: int
    at: str
    run: str
    settled: Settled


class Ended(Struct, frozen=True, tag_field="fact", tag="ended"):
    """The run is over. The one final status follows in the same commit."""

    seq: int
    at: str
    run: str
    outcome: Outcome
    reason: Reason
    message: str
    turns: int
    tool_calls: int


Fact = (
    Created
    | AttemptStarted
    | Copied
    | Contained
    | Launched
    | Said
    | Remembered
    | Noted
    | StopAsked
    | SteerAsked
    | PermissionDecided
    | Egress
    | EgressMore
    | CallStarted
    | CallEnded
    | CallRefused
    | KillStarted
    | Exited
    | TreeEmpty
    | Recovered
    | Collected
    | SpendClosed
    | Ended
    | Applied
)
"""Every fact a log may hold."""
