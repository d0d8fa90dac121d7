"""Codex, the command line agent of OpenAI."""

from __future__ import annotations

from capsule_drivers.codex.driver import CodexConfig, CodexDriver

__all__ = ["CodexConfig", "CodexDriver"]
