"""Codex, the command line agent of OpenAI."""

from __future__ import annotations

from capsule_drivers.codex.config import CodexConfig
from capsule_drivers.codex.driver import CodexDriver

__all__ = ["CodexConfig", "CodexDriver"]
