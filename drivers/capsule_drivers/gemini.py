"""Gemini CLI: over the Agent Client Protocol; `-o stream-json` where a session is resumed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

import msgspec
from msgspec import Struct

from capsule_drivers.acp import Permissions
from capsule_drivers.acp_dialogue import Dialogue, Plan
from capsule_drivers.acp_usage import Told, known
from capsule_drivers.acp_wire import Result, blocks_of, words_of
from capsule_drivers.exits import failure_of
from capsule_drivers.gemini_stream import StreamLines
from capsule_runtime import (
    Decision,
    Description,
    Event,
    Exit,
    FailureKind,
    LaunchPlan,
    LaunchRequest,
    Said,
    Send,
    Usage,
)

_SIGINT = 2
_STREAM_MARK = b'","timestamp":"'
_PROTOCOL_MARK = b'"jsonrpc"'
"""What stands in a line of stream-json, and what in one of the protocol: a recording may be of either."""
_ENV = {
    # Its launcher is deaf to signals, and in the way of its exit.
    "GEMINI_CLI_NO_RELAUNCH": "true",
    "GEMINI_TELEMETRY_ENABLED": "false",
    "NO_COLOR": "1",
}
_SETTINGS: Mapping[str, object] = {
    "privacy": {"usageStatisticsEnabled": False},
    "telemetry": {"enabled": False},
    "general": {
        "enableAutoUpdate": False,
        "enableAutoUpdateNotification": False,
        "maxAttempts": 2,
    },
    "security": {"auth": {"selectedType": "gemini-api-key"}},
}
_KINDS = {
    41: FailureKind.AUTH,
    53: FailureKind.MAX_TURNS,
    # An HTTP status, of which an exit code keeps eight bits.
    401 % 256: FailureKind.AUTH,
    403 % 256: FailureKind.AUTH,
    429 % 256: FailureKind.RATE_LIMIT,
}


class GeminiConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """`[harness.config]` of Gemini CLI."""

    mode: Literal["acp", "stream-json"] = "acp"
    permissions: Permissions = "bypass"
    """`ask`: each tool is asked for. stream-json can ask nobody, so there it has no shell then."""


class GeminiDriver:
    """Drive Gemini CLI."""

    Config: ClassVar[type[Struct]] = GeminiConfig

    def __init__(self) -> None:
        self._config = GeminiConfig()
        self._streams = False
        self._lines: StreamLines | None = None
        self._is_known = False
        """Whether it is settled which of the two dialects is spoken."""
        self._dialogue = Dialogue(_usage_of_turn, provider="google")

    def configure(self, config: Struct) -> None:
        """Take what `[harness.config]` says: what can be done depends on the mode."""
        assert isinstance(config, GeminiConfig)
        self._config = config
        self._streams = config.mode == "stream-json"

    def describe(self) -> Description:
        return Description(
            harness="gemini",
            command=("gemini",),
            version_args=("--version",),
            tested_versions=("0.61.0",),
            install="npm install -g @google/gemini-cli",
            keys=("GEMINI_API_KEY",),
            interrupt_signal=_SIGINT if self._streams else None,
            streams_text=True,
            usage="final",
            resumes=True,
            steers=not self._streams,
            asks_permission=not self._streams,
            loses_tail=True,
        )

    def launch(self, request: LaunchRequest) -> LaunchPlan:
        self.configure(request.config)
        self._is_known = True
        allows_all = self._config.permissions == "bypass"
        argv = (*(request.command or self.describe().command), "--skip-trust")
        model = request.model and request.model.removeprefix("google:")
        argv += ("-m", model) if model else ()
        files = {".gemini/settings.json": msgspec.json.encode(_SETTINGS)}
        if request.system_prompt:
            files[".gemini/GEMINI.md"] = request.system_prompt.encode()
        # session/load does not find the sessions of an earlier process.
        self._streams = self._streams or request.session is not None
        if self._streams:
            self._lines = StreamLines()
            argv += ("-o", "stream-json", *(("--yolo",) if allows_all else ()))
            argv += ("--resume", request.session) if request.session else ()
            words = "\n\n".join(words_of(request.message))
            return LaunchPlan((*argv, *request.args), dict(_ENV), files, stdin=words.encode())
        self._dialogue = Dialogue(_usage_of_turn, allows_all=allows_all, provider="google")
        plan = Plan(request.workdir, blocks_of(words_of(request.message)), model=model)
        return LaunchPlan(
            (*argv, "--acp", *request.args),
            dict(_ENV),
            files,
            stdin=self._dialogue.begin(plan),
            keep_stdin=True,
        )

    def receive(self, lines: bytes) -> Sequence[Said]:
        if not self._is_known and _STREAM_MARK in lines and _PROTOCOL_MARK not in lines:
            self._lines = StreamLines()
        self._is_known = self._is_known or self._lines is not None or _PROTOCOL_MARK in lines
        return (self._dialogue if self._lines is None else self._lines).receive(lines)

    def interrupt(self) -> Send | None:
        return None if self._lines else self._dialogue.interrupt()

    def steer(self, id: str, text: str) -> Send | None:
        return None if self._lines else self._dialogue.steer(id, text)

    def answer(self, id: str, decision: Decision) -> Send | None:
        return None if self._lines else self._dialogue.answer(id, decision)

    def ended(self, exit: Exit) -> Sequence[Event]:
        kind = _KINDS.get(exit.code or 0)
        if exit.code == 42:  # of all bad input, a session is the one that we do not choose
            gone = b"session" in exit.stderr_tail
            kind = FailureKind.SESSION_GONE if gone else FailureKind.HARNESS_ERROR
        left = self._dialogue.close() if self._lines is None else self._lines.close(exit)
        return [*left, failure_of(exit, kind)]


def _usage_of_turn(result: Result | None, told: Told) -> Sequence[Usage]:
    """Return the sums of the turn. What the thoughts used is in none: it is a report without numbers."""
    quota = result.meta.quota if result is not None and result.meta is not None else None
    found = [
        Usage(
            f"google:{one.model}",
            input_tokens=known(one.token_count.input_tokens),
            output_tokens=known(one.token_count.output_tokens),
            call_id=f"{told.session}/{told.turn}/{one.model}",
        )
        for one in (quota.model_usage if quota is not None else ())
    ]
    if not found and not told.rounds:
        return ()
    return [*found, Usage(told.model, call_id=f"{told.session}/{told.turn}/thoughts")]
