"""opencode: over the Agent Client Protocol, or `run --format json` (`config.mode = "run"`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

import msgspec
from msgspec import Struct

from capsule_drivers.acp import Permissions
from capsule_drivers.acp_dialogue import Dialogue, Plan
from capsule_drivers.acp_usage import Told, usage_of_turn
from capsule_drivers.acp_wire import Result, blocks_of, words_of
from capsule_drivers.exits import failure_of
from capsule_drivers.opencode_run import RunLines
from capsule_runtime import (
    Decision,
    Description,
    Event,
    Exit,
    FailureKind,
    HarnessError,
    LaunchPlan,
    LaunchRequest,
    Remember,
    Said,
    Send,
    Usage,
)

_QUIET = {
    "OPENCODE_DISABLE_AUTOUPDATE": "1",
    "OPENCODE_DISABLE_MODELS_FETCH": "1",
    "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
    "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
    "NO_COLOR": "1",
}
_SIGTERM = 15
_RUN_MARK = b'"sessionID":"'
_PROTOCOL_MARK = b'"jsonrpc"'
"""What stands in a line of `run`, and what in one of the protocol: a recording may be of either."""


class Provider(Struct, frozen=True):
    """Where a provider is found: variables of the caller, and what the address must end in."""

    key: str
    base_url: str
    path: str


_PROVIDERS = {
    "anthropic": Provider("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "/v1"),
    "openai": Provider("OPENAI_API_KEY", "OPENAI_BASE_URL", "/v1"),
    "google": Provider("GEMINI_API_KEY", "GOOGLE_GEMINI_BASE_URL", "/v1beta"),
    "openrouter": Provider("OPENROUTER_API_KEY", "OPENROUTER_BASE_URL", "/v1"),
}


class OpencodeConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """`[harness.config]` of opencode."""

    mode: Literal["acp", "run"] = "acp"
    permissions: Permissions = "bypass"
    """`ask`: each tool that changes or runs something is asked for."""


class Memory(Struct, frozen=True):
    """What is kept of a session."""

    cost: float | None = None
    """The harness's own dollars at the end of its last turn."""


class OpencodeDriver:
    """Drive opencode."""

    Config: ClassVar[type[Struct]] = OpencodeConfig

    def __init__(self) -> None:
        self._config = OpencodeConfig()
        self._spent: float | None = None
        """The harness's own dollars for the session before; None if nobody told."""
        self._dialogue = Dialogue(self._usage_of_turn, injects=True)
        self._lines: RunLines | None = None
        self._is_known = False
        """Whether it is settled which of the two dialects is spoken."""

    def configure(self, config: Struct) -> None:
        """Take what `[harness.config]` says: what can be done depends on the mode."""
        assert isinstance(config, OpencodeConfig)
        self._config = config

    def describe(self) -> Description:
        runs = self._config.mode == "run"
        return Description(
            harness="opencode",
            command=("opencode",),
            version_args=("--version",),
            tested_versions=("1.18.33",),
            install="npm install -g opencode-ai",
            keys=tuple(provider.key for provider in _PROVIDERS.values()),
            interrupt_signal=_SIGTERM if runs else None,
            streams_text=not runs,
            usage="per-call" if runs else "final",
            resumes=True,
            steers=not runs,
            asks_permission=not runs,
        )

    def launch(self, request: LaunchRequest) -> LaunchPlan:
        self.configure(request.config)
        self._is_known = True
        config = self._config
        model = _model_of(request)
        command = request.command or self.describe().command
        files = _files_of(request, model, asks=config.permissions == "ask")
        if config.mode == "run":
            self._lines = RunLines(model.replace("/", ":", 1))
            argv = (*command, "run", "--format", "json", "--thinking", *request.args)
            argv += ("-m", model)
            argv += ("--auto",) if config.permissions == "bypass" else ()
            argv += ("--session", request.session) if request.session else ()
            words = "\n\n".join(words_of(request.message))
            return LaunchPlan(argv, dict(_QUIET), files, stdin=words.encode())
        self._spent = _spent_before(request)
        self._dialogue = Dialogue(
            self._usage_of_turn, allows_all=config.permissions == "bypass", injects=True
        )
        plan = Plan(
            request.workdir, blocks_of(words_of(request.message)), request.session, model=model
        )
        argv = (*command, "acp", *request.args)
        return LaunchPlan(argv, dict(_QUIET), files, self._dialogue.begin(plan), keep_stdin=True)

    def receive(self, lines: bytes) -> Sequence[Said]:
        if not self._is_known and _RUN_MARK in lines and _PROTOCOL_MARK not in lines:
            self._lines = RunLines()
        self._is_known = self._is_known or self._lines is not None or _PROTOCOL_MARK in lines
        return (self._dialogue if self._lines is None else self._lines).receive(lines)

    def interrupt(self) -> Send | None:
        return None if self._lines else self._dialogue.interrupt()

    def steer(self, id: str, text: str) -> Send | None:
        return None if self._lines else self._dialogue.steer(id, text)

    def answer(self, id: str, decision: Decision) -> Send | None:
        return None if self._lines else self._dialogue.answer(id, decision)

    def ended(self, exit: Exit) -> Sequence[Event]:
        gone = b"Session not found" in exit.stderr_tail
        kind = FailureKind.SESSION_GONE if gone else None
        if self._lines is not None:
            return self._lines.ended(exit, kind)
        return [*self._dialogue.close(), failure_of(exit, kind)]

    def _usage_of_turn(self, result: Result | None, told: Told) -> Sequence[Usage | Remember]:
        """Return a report for each call: the harness has numbers for the last one alone."""
        if result is None or result.usage is None:
            return usage_of_turn(result, told)
        new = None if told.is_loaded else 0.0
        before, self._spent = new if self._spent is None else self._spent, told.cost
        spent = None if before is None or told.cost is None else max(told.cost - before, 0.0)
        reports = usage_of_turn(result, told, round(spent, 9) if spent else None)
        return [*reports, Remember(msgspec.json.encode(Memory(told.cost)))]


def _model_of(request: LaunchRequest) -> str:
    """Return the model as `provider/id`; a bare name is of the provider whose key is given.

    Raises:
        HarnessError: E-HAR-010, none is named: opencode would send the task to a model of its own.
    """
    if not request.model:
        raise HarnessError(
            "E-HAR-010",
            "no model is named, and opencode's own choice may be a provider that nobody named",
            'Write model = "anthropic/claude-sonnet-4-5" under [harness], or give --model.',
        )
    name, _, id = request.model.partition(":")
    if id and name in _PROVIDERS:
        return f"{name}/{id}"
    if "/" in request.model:
        return request.model
    named = [name for name, it in _PROVIDERS.items() if request.env.get(it.key)]
    return f"{named[0] if named else 'anthropic'}/{request.model}"


def _files_of(request: LaunchRequest, model: str, *, asks: bool) -> Mapping[str, bytes]:
    name, _, id = model.partition("/")
    tools = "ask" if asks else "allow"
    settings: dict[str, object] = {
        "$schema": "https://opencode.ai/config.json",
        "autoupdate": False,
        "share": "disabled",
        # A title is a call of the model that no report counts.
        "agent": {"title": {"disable": True}},
        "permission": {"edit": tools, "bash": tools, "webfetch": tools},
        "provider": {name: {"options": _options_of(name, request.env)}},
    }
    if id:
        known = {"options": _options_of(name, request.env), "models": {id: dict[str, str]()}}
        settings |= {"model": model, "small_model": model, "provider": {name: known}}
    files = {".config/opencode/opencode.json": msgspec.json.encode(settings)}
    if request.system_prompt:
        files[".config/opencode/AGENTS.md"] = request.system_prompt.encode()
    return files


def _options_of(name: str, env: Mapping[str, str]) -> Mapping[str, str]:
    """Return how the provider *name* is reached; the key itself is written nowhere."""
    if (provider := _PROVIDERS.get(name)) is None:
        return {}
    options = {"apiKey": f"{{env:{provider.key}}}"}
    if base_url := env.get(provider.base_url, "").rstrip("/"):
        has_path = base_url.endswith(provider.path)
        options["baseURL"] = base_url if has_path else base_url + provider.path
    return options


def _spent_before(request: LaunchRequest) -> float | None:
    """Return the harness's own dollars before this attempt; None if nobody knows, or it is new."""
    if request.session is None:
        return None
    try:
        return msgspec.json.decode(request.memory or b"{}", type=Memory).cost
    except msgspec.DecodeError:
        return None
