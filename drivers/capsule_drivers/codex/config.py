"""What a manifest may say of Codex."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


class CodexConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """`[harness.config]` of Codex."""

    mode: Literal["app-server", "exec"] = "app-server"
    approvals: Literal["never", "ask"] = "never"
    """Whether it asks before it runs what it does not know to be harmless; only as app-server."""
    sandbox: Literal["off", "read-only", "workspace-write"] = "off"
    """Codex's own. It is off because the run's walls hold."""
    web_search: Literal["off", "cached", "live"] = "off"
    """Whether the provider searches for it: that leads past the walls, and has no bound in dollars."""

    def __post_init__(self) -> None:
        if self.mode == "exec" and self.approvals == "ask":
            raise ValueError('approvals is "ask", and in mode "exec" nobody can be asked')
