"""How Qwen Code is started: its arguments, and the files it reads in HOME."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from capsule_runtime import Description, LaunchPlan, LaunchRequest

_KEYS = {
    "openai": "OPENAI_API_KEY",
    "anthropic": "ANTHROPIC_API_KEY",
    "gemini": "GEMINI_API_KEY",
}
"""How it may sign in, and the variable that holds the key."""
_DELAYS = {"retryInitialDelayMs": 1000, "retryMaxDelayMs": 10_000}
"""Else it waits for minutes before it tries a call again."""
_PROVIDERS = {"openai": "openai", "anthropic": "anthropic", "gemini": "google"}

DESCRIPTION = Description(
    harness="qwen-code",
    command=("qwen",),
    version_args=("--version",),
    tested_versions=("0.24.4",),
    install="npm install -g @qwen-code/qwen-code",
    keys=tuple(_KEYS.values()),
    streams_text=True,
    usage="per-call",
    resumes=True,
    steers=True,
    asks_permission=True,
    loses_tail=True,
)


class QwenCodeConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """`[harness.config]` of Qwen Code."""

    auth: Literal["openai", "anthropic", "gemini"] | None = None
    """Which API it speaks; else the first key that is given says."""
    permissions: Literal["allow", "ask"] = "allow"
    """Whether its tools run as they like, or each asks first."""
    max_turns: Annotated[int, Meta(ge=1)] | None = None
    """How many answers of the model one task may take."""
    retries: Annotated[int, Meta(ge=0)] = 0
    """How often it tries a call again that it gave up after its own seven tries."""


def auth_of(request: LaunchRequest) -> str:
    """Return which API is spoken."""
    assert isinstance(request.config, QwenCodeConfig)
    given = (name for name, key in _KEYS.items() if request.env.get(key))
    return request.config.auth or next(given, "openai")


def provider_and_model(request: LaunchRequest) -> tuple[str, str]:
    """Return whose model it is, and its name: a prefix such as `openrouter:` says whose."""
    provider, colon, name = (request.model or "").partition(":")
    if colon:
        return provider, name
    return _PROVIDERS[auth_of(request)], provider


def plan(request: LaunchRequest, model: str) -> LaunchPlan:
    """Return how it is started, without what it is told on stdin."""
    config, auth = request.config, auth_of(request)
    assert isinstance(config, QwenCodeConfig)
    turns = config.max_turns
    return LaunchPlan(
        argv=(
            *request.command,
            *("--input-format", "stream-json", "--output-format", "stream-json"),
            "--include-partial-messages",
            *("--approval-mode", "yolo" if config.permissions == "allow" else "default"),
            *("--auth-type", auth),
            *(("--model", model) if model else ()),
            *(("--resume", request.session) if request.session else ()),
            *(("--max-session-turns", str(turns)) if turns else ()),
            *request.args,
        ),
        env={
            "QWEN_TELEMETRY_ENABLED": "false",
            "QWEN_CODE_SUPPRESS_YOLO_WARNING": "1",
            "NO_COLOR": "1",
        },
        files={
            ".qwen/settings.json": msgspec.json.encode(_settings(auth, config)),
            ".qwen/QWEN.md": (request.system_prompt or "").encode(),
        },
        keep_stdin=True,
    )


def _settings(auth: str, config: QwenCodeConfig) -> dict[str, object]:
    return {
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
        "general": {"enableAutoUpdate": False, "disableAutoUpdate": True},
        "security": {"auth": {"selectedType": auth}},
        # Calls of the model after each answer, which nobody asked for.
        "ui": {"enableFollowupSuggestions": False},
        "memory": {"enableManagedAutoMemory": False, "enableManagedAutoDream": False},
        "model": {"generationConfig": {"maxRetries": config.retries, **_DELAYS}},
    }
