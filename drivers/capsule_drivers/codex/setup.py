"""How Codex is set up for a run: `config.toml` in its own HOME, and the prompt.

The key is in no file and no argument: the file names the variable that holds it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from capsule_drivers.codex.config import CodexConfig
from capsule_runtime import LaunchRequest, Message, TextPart

_FOLDER = ".codex"
_KEYS = ("OPENAI_API_KEY", "CODEX_API_KEY")
_PUBLIC_URL = "https://api.openai.com/v1"
_RETRIES = 2
"""Of a model call that failed, whyever it did: Codex has no switch for an error of one kind."""
_UNTOLD_RETRIES = 0
"""Of the request in each of those: Codex says nothing of them, and its own 4 make 30 of one."""
_POLICIES = {"never": "never", "ask": "untrusted"}
_SANDBOXES = {"off": "danger-full-access"}
_SEARCHES = {"off": "disabled"}


@dataclass(frozen=True, slots=True)
class Setup:
    """What was decided for one launch."""

    folder: str
    files: Mapping[str, bytes]
    thread: Mapping[str, object]
    """What `thread/start` or `thread/resume` is asked with."""
    model: str | None


def keys() -> tuple[str, ...]:
    """Return the variables that may hold the key."""
    return _KEYS


def config_file(request: LaunchRequest, config: CodexConfig) -> Setup:
    """Return how Codex is set up for *request*."""
    model = request.model.removeprefix("openai:") if request.model else None
    policy, sandbox = _POLICIES[config.approvals], _SANDBOXES.get(config.sandbox, config.sandbox)
    instructions = request.system_prompt
    tables: dict[str, Mapping[str, object]] = {
        "": {
            "model": model,
            "model_provider": "capsule",
            "developer_instructions": instructions,
            "sandbox_mode": sandbox,
            "check_for_update_on_startup": False,
            "web_search": _SEARCHES.get(config.web_search, config.web_search),
        },
        "analytics": {"enabled": False},
        # Both ask the vendor's servers at each start, whichever provider is set.
        "features": {"plugins": False, "apps": False},
        # The commands that the model runs have no use for the key.
        "shell_environment_policy": {"exclude": _KEYS},
        "model_providers.capsule": _provider(request.env),
    }
    thread = {
        "threadId": request.session,
        "excludeTurns": True if request.session else None,
        "cwd": request.workdir,
        "approvalPolicy": policy,
        "sandbox": sandbox,
        "model": model,
        "developerInstructions": instructions,
    }
    return Setup(
        f"{request.home}/{_FOLDER}",
        {f"{_FOLDER}/config.toml": _toml(tables)},
        {name: value for name, value in thread.items() if value is not None},
        model,
    )


def words_of(message: Message) -> str:
    """Return the task as one prompt; what was handed in beside the words follows, with its name."""
    return "\n\n".join(
        _named(part.name, part.text if isinstance(part, TextPart) else _json(part.data))
        for part in message.parts
    )


def _named(name: str | None, text: str) -> str:
    return text if name is None else f"{name}:\n{text}"


def _provider(env: Mapping[str, str]) -> Mapping[str, object]:
    return {
        "name": "capsule",
        "base_url": env.get("OPENAI_BASE_URL") or _PUBLIC_URL,
        "env_key": next((key for key in _KEYS if env.get(key)), _KEYS[0]),
        "wire_api": "responses",
        "request_max_retries": _UNTOLD_RETRIES,
        "stream_max_retries": _RETRIES,
    }


def _toml(tables: Mapping[str, Mapping[str, object]]) -> bytes:
    """Write *tables*; the JSON of a string, a number, a boolean or a list is its TOML as well."""
    lines: list[str] = []
    for name, table in tables.items():
        lines += [f"[{name}]"] if name else []
        lines += [f"{key} = {_json(value)}" for key, value in table.items() if value is not None]
    return ("\n".join(lines) + "\n").encode()


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode().replace("\x7f", "\\u007f")
