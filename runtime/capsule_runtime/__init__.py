"""Run other people's coding agents: supervised, metered, contained, streamed."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from capsule_runtime.core.calls import CallUsage, UsageTotal
    from capsule_runtime.core.ceilings import Ceilings, DayCeilings
    from capsule_runtime.core.outcome import Outcome, Reason, exit_code
    from capsule_runtime.core.work import Tally, Warned, WorkChanges
    from capsule_runtime.driver import (
        Description,
        Driver,
        LaunchPlan,
        LaunchRequest,
        NoConfig,
        Said,
        find_driver,
    )
    from capsule_runtime.embedding import RunHandle, RunResult, RunSummary
    from capsule_runtime.errors import (
        CapsuleError,
        ContainmentError,
        HarnessError,
        HostError,
        ManifestError,
        SpendError,
        StoreError,
        TrustError,
        UsageError,
    )
    from capsule_runtime.events import (
        Activity,
        Dispatch,
        Event,
        FailureKind,
        Handoff,
        Note,
        Permission,
        Retrying,
        Session,
        Sleep,
        Steered,
        Suspend,
        Text,
        TextDelta,
        Thinking,
        ThinkingDelta,
        ToolCall,
        ToolResult,
        TurnEnd,
        TurnFailed,
        Usage,
    )
    from capsule_runtime.frames import ArtifactFrame, Frame, StatusFrame, TextFrame, ThinkingFrame
    from capsule_runtime.logs import Logger
    from capsule_runtime.manifest import Manifest, parse_manifest
    from capsule_runtime.messages import (
        Ack,
        Answer,
        DataPart,
        Decision,
        Exit,
        Message,
        Part,
        Refused,
        Remember,
        Send,
        TextPart,
    )
    from capsule_runtime.request import RunRequest
    from capsule_runtime.supervisor import Supervisor, open_supervisor

__all__ = [
    "Ack",
    "Activity",
    "Answer",
    "ArtifactFrame",
    "CallUsage",
    "CapsuleError",
    "Ceilings",
    "ContainmentError",
    "DataPart",
    "DayCeilings",
    "Decision",
    "Description",
    "Dispatch",
    "Driver",
    "Event",
    "Exit",
    "FailureKind",
    "Frame",
    "Handoff",
    "HarnessError",
    "HostError",
    "LaunchPlan",
    "LaunchRequest",
    "Logger",
    "Manifest",
    "ManifestError",
    "Message",
    "NoConfig",
    "Note",
    "Outcome",
    "Part",
    "Permission",
    "Reason",
    "Refused",
    "Remember",
    "Retrying",
    "RunHandle",
    "RunRequest",
    "RunResult",
    "RunSummary",
    "Said",
    "Send",
    "Session",
    "Sleep",
    "SpendError",
    "StatusFrame",
    "Steered",
    "StoreError",
    "Supervisor",
    "Suspend",
    "Tally",
    "Text",
    "TextDelta",
    "TextFrame",
    "TextPart",
    "Thinking",
    "ThinkingDelta",
    "ThinkingFrame",
    "ToolCall",
    "ToolResult",
    "TrustError",
    "TurnEnd",
    "TurnFailed",
    "Usage",
    "UsageError",
    "UsageTotal",
    "Warned",
    "WorkChanges",
    "exit_code",
    "find_driver",
    "open_supervisor",
    "parse_manifest",
]

_HOMES = {
    "core.calls": (
        "CallUsage",
        "UsageTotal",
    ),
    "core.ceilings": (
        "Ceilings",
        "DayCeilings",
    ),
    "core.outcome": (
        "Outcome",
        "Reason",
        "exit_code",
    ),
    "core.work": (
        "Tally",
        "Warned",
        "WorkChanges",
    ),
    "driver": (
        "Description",
        "Driver",
        "LaunchPlan",
        "LaunchRequest",
        "NoConfig",
        "Said",
        "find_driver",
    ),
    "embedding": (
        "RunHandle",
        "RunResult",
        "RunSummary",
    ),
    "errors": (
        "CapsuleError",
        "ContainmentError",
        "HarnessError",
        "HostError",
        "ManifestError",
        "SpendError",
        "StoreError",
        "TrustError",
        "UsageError",
    ),
    "events": (
        "Activity",
        "Dispatch",
        "Event",
        "FailureKind",
        "Handoff",
        "Note",
        "Permission",
        "Retrying",
        "Session",
        "Sleep",
        "Steered",
        "Suspend",
        "Text",
        "TextDelta",
        "Thinking",
        "ThinkingDelta",
        "ToolCall",
        "ToolResult",
        "TurnEnd",
        "TurnFailed",
        "Usage",
    ),
    "frames": (
        "ArtifactFrame",
        "Frame",
        "StatusFrame",
        "TextFrame",
        "ThinkingFrame",
    ),
    "logs": ("Logger",),
    "manifest": (
        "Manifest",
        "parse_manifest",
    ),
    "messages": (
        "Ack",
        "Answer",
        "DataPart",
        "Decision",
        "Exit",
        "Message",
        "Part",
        "Refused",
        "Remember",
        "Send",
        "TextPart",
    ),
    "request": ("RunRequest",),
    "supervisor": (
        "Supervisor",
        "open_supervisor",
    ),
}


def __getattr__(name: str) -> object:
    """Import a public name when it is first asked for: the command needs few, and is in a hurry."""
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
