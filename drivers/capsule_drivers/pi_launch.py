"""How pi is started: its arguments, and the files it reads in HOME."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import Struct

from capsule_runtime import Description, HarnessError, LaunchPlan, LaunchRequest

_FOLDER = ".pi/agent"
_RETRIES = 3
_KEYS = {
    "anthropic": "ANTHROPIC_API_KEY",
    "openai": "OPENAI_API_KEY",
    "google": "GEMINI_API_KEY",
    "openrouter": "OPENROUTER_API_KEY",
    "mistral": "MISTRAL_API_KEY",
    "deepseek": "DEEPSEEK_API_KEY",
    "groq": "GROQ_API_KEY",
    "xai": "XAI_API_KEY",
}
"""The providers of pi that are offered, and the variable of each that holds its key."""
_URLS = {
    "anthropic": ("ANTHROPIC_BASE_URL", ""),
    "openai": ("OPENAI_BASE_URL", ""),
    "google": ("GOOGLE_GEMINI_BASE_URL", "/v1beta"),
}
"""The variable that holds a provider's base URL, and what pi wants behind it."""

DESCRIPTION = Description(
    harness="pi",
    command=("pi",),
    version_args=("--version",),
    tested_versions=("0.73.1",),
    install="npm install -g @mariozechner/pi-coding-agent",
    keys=tuple(_KEYS.values()),
    streams_text=True,
    usage="per-call",
    resumes=True,
    steers=True,
)


class PiConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """`[harness.config]` of pi."""

    provider: str | None = None
    """Whose model it is; else the model's prefix says, or the first key that is given."""
    api: (
        Literal[
            "anthropic-messages", "openai-completions", "openai-responses", "google-generative-ai"
        ]
        | None
    ) = None
    """How a server of your own is spoken to, if not as the provider."""
    thinking: Literal["off", "minimal", "low", "medium", "high", "xhigh"] | None = None


def provider_of(request: LaunchRequest) -> str:
    """Return whose model is asked for.

    Raises:
        HarnessError: E-HAR-010, it is none that is known.
    """
    assert isinstance(request.config, PiConfig)
    prefix = (request.model or "").partition(":")[0]
    first = next((name for name, key in _KEYS.items() if request.env.get(key)), "anthropic")
    named = request.config.provider or (prefix if prefix in _KEYS else first)
    if named not in _KEYS:
        raise HarnessError(
            "E-HAR-010",
            f"the driver 'pi' knows no provider {named!r}; known: {', '.join(_KEYS)}",
            "Name one of them in provider under [harness.config].",
        )
    return named


def plan(request: LaunchRequest, provider: str) -> LaunchPlan:
    """Return how pi is started, without what it is told on stdin."""
    assert isinstance(request.config, PiConfig)
    model = (request.model or "").removeprefix(f"{provider}:")
    thinking = request.config.thinking
    chosen = ("--provider", provider, "--model", model) if model else ()
    return LaunchPlan(
        argv=(
            *request.command,
            *("--mode", "rpc"),
            *chosen,
            *(("--thinking", thinking) if thinking else ()),
            *(("--session", request.session) if request.session else ()),
            *request.args,
        ),
        env={"PI_OFFLINE": "1", "PI_TELEMETRY": "0", "PI_SKIP_VERSION_CHECK": "1"},
        files={
            f"{_FOLDER}/models.json": _json({"providers": _providers(request, provider, model)}),
            f"{_FOLDER}/settings.json": _json(
                {
                    "enableInstallTelemetry": False,
                    "quietStartup": True,
                    # One kind of retry, the one that pi tells of.
                    "retry": {
                        "maxRetries": _RETRIES,
                        "baseDelayMs": 1000,
                        "provider": {"maxRetries": 0},
                    },
                }
            ),
            f"{_FOLDER}/APPEND_SYSTEM.md": (request.system_prompt or "").encode(),
        },
        keep_stdin=True,
    )


def _providers(request: LaunchRequest, provider: str, model: str) -> dict[str, object]:
    """Return where each provider is reached. A key is named, never written."""
    assert isinstance(request.config, PiConfig)
    found = dict[str, object]()
    for name, (variable, suffix) in _URLS.items():
        if not (url := request.env.get(variable)):
            continue
        one: dict[str, object] = {"baseUrl": _with_suffix(url.rstrip("/"), suffix)}
        if name == provider and request.config.api and model:
            one |= {"api": request.config.api, "apiKey": _KEYS[name], "models": [{"id": model}]}
        found[name] = one
    return found


def _with_suffix(url: str, suffix: str) -> str:
    return url if not suffix or url.endswith(suffix) else url + suffix


def _json(value: object) -> bytes:
    return msgspec.json.encode(value)
