"""What a program's own logger is told: the facts of each run as they are committed, and trouble.

Nothing is told unless a logger was given. It may be any of structlog's, or anything that takes
`info("words", name=value)` and gives a logger with more context from `bind(name=value)`. It gets
no text of a harness but the messages of failures, which a renderer must escape, and no value of
any environment variable.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from capsule_runtime.core import facts
from capsule_runtime.core.network_facts import Egress
from capsule_runtime.core.outcome import Outcome
from capsule_runtime.errors import CapsuleError


class Logger(Protocol):
    """Where lines go."""

    def bind(self, **new_values: Any) -> Logger:
        """Return a logger that puts *new_values* into each of its lines."""
        ...

    def debug(self, event: str, **kw: Any) -> Any:
        """Take a line for who looks closely."""
        ...

    def info(self, event: str, **kw: Any) -> Any:
        """Take a line that tells how things go."""
        ...

    def warning(self, event: str, **kw: Any) -> Any:
        """Take a line about what should not be, and was dealt with."""
        ...

    def error(self, event: str, **kw: Any) -> Any:
        """Take a line about what is lost."""
        ...


Observe = Callable[[facts.Fact], None]
"""Be told of a fact that is on disk."""


class Logs:
    """Tell a logger, if there is one. Its faults cost their line only."""

    def __init__(self, logger: Logger | None = None) -> None:
        self._logger = logger

    @property
    def observe(self) -> Observe | None:
        """Return who wants to be told of facts; None if nobody does."""
        return self._fact if self._logger else None

    def of(self, **context: str) -> Logs:
        """Return logs that put *context* into each line."""
        return Logs(_quietly(self._logger.bind, **context)) if self._logger else self

    def info(self, event: str, **fields: object) -> None:
        """Tell how things go."""
        if self._logger:
            _quietly(self._logger.info, event, **fields)

    def warning(self, event: str, **fields: object) -> None:
        """Tell of what should not be."""
        if self._logger:
            _quietly(self._logger.warning, event, **fields)

    def trouble(self, error: CapsuleError, **fields: object) -> None:
        """Tell of *error*, which ends something."""
        if self._logger:
            told = {"code": error.code, "message": error.message, **fields}
            _quietly(self._logger.error, "trouble", **told)

    def _fact(self, fact: facts.Fact) -> None:
        if self._logger and (line := _line_of(fact)) is not None:
            level, event, fields = line
            _quietly(getattr(self._logger, level), event, seq=fact.seq, **fields)


def _line_of(fact: facts.Fact) -> tuple[str, str, dict[str, object]] | None:
    """Return level, words and fields of the line for *fact*; None if it is worth none."""
    match fact:
        case facts.Created():
            fields = {"capsule": fact.manifest.name, "owner": fact.owner, "workdir": fact.workdir}
            return "info", "run created", dict(fields)
        case facts.AttemptStarted(attempt=number, driver=driver, containment=tier):
            return (
                "info",
                "attempt started",
                {"attempt": number, "driver": driver, "containment": tier},
            )
        case facts.Launched(pid=pid):
            return "info", "harness launched", {"pid": pid}
        case facts.StopAsked(reason=reason, message=message):
            return "info", "stop asked", {"reason": reason.value, "message": message}
        case facts.SteerAsked(id=id, refused=None):
            return "info", "steered", {"steer": id}
        case facts.SteerAsked(id=id, refused=why):
            fields = {"steer": id, "why": why.message if why else ""}
            return "info", "steer refused", dict(fields)
        case facts.PermissionDecided(id=id, tool=tool, allowed=allowed):
            return "info", "permission decided", {"request": id, "tool": tool, "allowed": allowed}
        case Egress():
            return _egress(fact)
        case facts.KillStarted():
            return "warning", "kill started", {}
        case facts.Exited(code=code, signal=signal):
            return "info", "harness exited", {"code": code, "signal": signal}
        case facts.TreeEmpty(killed=killed, left=left, burial_ms=burial_ms):
            level = "info" if left == 0 else "error"
            event = "tree empty" if left == 0 else "tree not proved empty"
            return level, event, {"killed": killed, "left": left, "burial_ms": burial_ms}
        case facts.SpendClosed(settled=settled) if settled.steps:
            return "info", "spend closed", {"tokens": settled.tokens, "steps": settled.steps}
        case facts.Recovered(by=by):
            return "warning", "run recovered", {"by": by}
        case facts.Ended():
            return _end_of(fact)
        case facts.Noted(text=text):
            return "debug", "note", {"text": text}
        case _:
            return None


def _egress(fact: Egress) -> tuple[str, str, dict[str, object]]:
    fields: dict[str, object] = {"door": fact.door, "place": fact.place, "address": fact.address}
    if fact.refused is not None:
        return "info", "egress refused", {**fields, "why": fact.refused.value}
    moved = {"sent": fact.sent, "received": fact.received, "ms": fact.ms}
    return "debug", "egress ended", {**fields, **moved, "how": str(fact.ended)}


def _end_of(fact: facts.Ended) -> tuple[str, str, dict[str, object]]:
    level = "warning" if fact.outcome is Outcome.LOST else "info"
    fields: dict[str, object] = {
        "outcome": fact.outcome.value,
        "reason": fact.reason.value,
        "message": fact.message,
        "turns": fact.turns,
        "tool_calls": fact.tool_calls,
    }
    return level, "run ended", fields


def _quietly(tell: Callable[..., Any], *args: str, **fields: object) -> Any:
    """Call *tell*: a logger is the caller's code, and may not end a run."""
    try:
        return tell(*args, **fields)
    except Exception:
        return None
