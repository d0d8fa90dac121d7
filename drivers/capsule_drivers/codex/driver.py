"""Codex, by its app-server (the default) or by `exec --json`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import msgspec
from msgspec import Struct

from capsule_drivers.codex.calls import baseline_of, kind_of_words
from capsule_drivers.codex.config import CodexConfig
from capsule_drivers.codex.exec_lines import ExecStream
from capsule_drivers.codex.server import INITIALIZE, AppServer, Opening, call
from capsule_drivers.codex.setup import config_file, keys, words_of
from capsule_drivers.json_text import unread
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
    TurnFailed,
    Usage,
)

_SIGINT = 2
_CALL, _EVENT = b'{"method":"', b'{"type":"'
_END = _CALL + b'turn/completed"'
_USAGE_MARKS = (b'"thread/tokenUsage/updated"', b'"tokenUsage"', b'"turn.completed"')
"""What stands in the lines that report usage, the last one in those of `exec`."""
_VENDOR = "vendor/{machine}-unknown-linux-musl/bin/codex"


class _Head(Struct, frozen=True):
    method: str = ""
    type: str = ""


_heads: msgspec.json.Decoder[_Head] = msgspec.json.Decoder(_Head)


class CodexDriver:
    """Drive Codex."""

    Config: ClassVar[type[Struct]] = CodexConfig

    def __init__(self) -> None:
        self._config = CodexConfig()
        self._server = AppServer()
        self._exec = ExecStream()

    def configure(self, config: Struct) -> None:
        """Take what `[harness.config]` says: in the other mode it can do other things."""
        assert isinstance(config, CodexConfig)
        self._config = config

    def describe(self) -> Description:
        is_server = self._config.mode == "app-server"
        return Description(
            harness="codex",
            command=("codex",),
            native=(
                f"../codex-linux-*/{_VENDOR}",
                f"node_modules/@openai/codex-linux-*/{_VENDOR}",
                _VENDOR,
            ),
            version_args=("--version",),
            tested_versions=("0.171.0",),
            install="npm install -g @openai/codex",
            keys=keys(),
            interrupt_signal=None if is_server else _SIGINT,
            streams_text=is_server,
            usage="per-call" if is_server else "final",
            resumes=True,
            steers=is_server,
            asks_permission=is_server,
        )

    def launch(self, request: LaunchRequest) -> LaunchPlan:
        self.configure(request.config)
        baseline = baseline_of(request.memory, request.session)
        planned = config_file(request, self._config)
        files, env = planned.files, {"CODEX_HOME": planned.folder}
        if self._config.mode == "exec":
            self._exec = ExecStream(planned.model, request.session, baseline)
            argv = (*request.command, "exec", *_exec_words(request, self._config.sandbox))
            return LaunchPlan(argv, env, files, words_of(request.message).encode())
        self._server = AppServer(Opening(planned.thread, words_of(request.message)), baseline)
        client = {"name": "capsule", "title": "Capsule", "version": "1"}
        first = call(INITIALIZE, "initialize", {"clientInfo": client})
        argv = (*request.command, "app-server", *request.args)
        return LaunchPlan(argv, env, files, first.data, keep_stdin=True)

    def receive(self, lines: bytes) -> Sequence[Said]:
        said: list[Said] = []
        for line in lines.split(b"\n"):
            if line and not line.isspace():
                said += self._one(line)
        return said

    def interrupt(self) -> Send | None:
        return self._server.interrupt() if self._config.mode == "app-server" else None

    def steer(self, id: str, text: str) -> Send | None:
        return self._server.steer(id, text) if self._config.mode == "app-server" else None

    def answer(self, id: str, decision: Decision) -> Send | None:
        return self._server.answer(id, decision)

    def ended(self, exit: Exit) -> Sequence[Event]:
        error = self._server.turn.last_error or self._exec.last_error or _complaint(exit)
        kind = kind_of_words(error)
        if kind is FailureKind.OTHER:
            clean = exit.signal is None and not exit.code
            kind = FailureKind.INDETERMINATE if clean else FailureKind.HARNESS_ERROR
        failed = TurnFailed(kind, f"codex {_how(exit)}{f': {error}' if error else ''}")
        closed = [*self._server.turn.tools.close(), *self._exec.tools.close()]
        return [*self._server.turn.cut(), *self._exec.cut(), *closed, failed]

    def _one(self, line: bytes) -> Sequence[Said]:
        try:
            if line.startswith(_CALL):
                end = line.find(b'"', len(_CALL))
                return self._server.notified(line[len(_CALL) : end], line)
            if line.startswith(_EVENT):
                return self._exec.heard(line)
            head = _heads.decode(line)
            if head.type:
                return self._exec.heard(line)
            if head.method:
                return self._server.notified(head.method.encode(), line)
            return self._server.answered(line)
        except (ValueError, RecursionError, msgspec.DecodeError) as exc:
            hidden = self._unread_usage(line)
            ended = self._server.turn.unread_end() if self._is_end(line) else ()
            return [unread(line, exc), *hidden, *ended]

    def _is_end(self, line: bytes) -> bool:
        """Tell whether a *line* that cannot be read is the end of our turn: agents have theirs."""
        turn = self._server.turn.id.encode()
        return bool(turn) and line.startswith(_END) and b'"turn":{"id":"%s"' % turn in line

    def _unread_usage(self, line: bytes) -> Sequence[Said]:
        """Return a report without numbers for a *line* that was to be one: unknown is not free."""
        if not any(mark in line for mark in _USAGE_MARKS):
            return ()
        return [Usage(self._exec.model if _USAGE_MARKS[-1] in line else self._server.turn.model)]


def _exec_words(request: LaunchRequest, sandbox: str) -> Sequence[str]:
    """Return what follows `codex exec`: the prompt comes on stdin."""
    resumed = ("resume",) if request.session else ()
    walls = ("--dangerously-bypass-approvals-and-sandbox",) if sandbox == "off" else ()
    session = (request.session,) if request.session else ()
    return (*resumed, "--json", "--skip-git-repo-check", *walls, *request.args, *session, "-")


def _complaint(exit: Exit) -> str:
    """Return the last line on stderr that says what went wrong, else the last that says anything.

    It also tells there that it reads stdin, and how to call for help.
    """
    lines = exit.stderr_tail.decode("utf-8", "replace").splitlines()
    said = [line.strip()[:500] for line in lines if line.strip() and "from stdin" not in line]
    errors = [line for line in said if line.lower().startswith("error")]
    return [*said[-1:], *errors[-1:]][-1] if said else ""


def _how(exit: Exit) -> str:
    if exit.signal is not None:
        return f"was ended by signal {exit.signal} before its turn was over"
    code = "" if exit.code is None else f" with code {exit.code}"
    return f"left{code} before its turn was over"
