"""Lines about how things go, for `--log-level`: structlog's, on stderr, one row each."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from capsule_runtime.cli.lines import Line
from capsule_runtime.cli.printer import Shown, shown_json, shown_line

if TYPE_CHECKING:
    from capsule_runtime.logs import Logger

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("console", "json")

Write = Callable[[Shown], None]
"""Write a row; never waits for who reads it."""


class LogWishes(NamedTuple):
    """What to tell of how things go, and how."""

    level: str
    format: str

    def logger(self, write: Write) -> Logger:
        """Return a logger that gives its rows to *write*. Nothing global is set up."""
        # It takes an eighth of a second to import, so only who asks for lines waits for it.
        import structlog

        renderer = structlog.processors.JSONRenderer() if self.format == "json" else _in_words
        wrapped: object = structlog.wrap_logger(
            _Rows(write, shown_json if self.format == "json" else shown_line),
            processors=[
                structlog.processors.add_log_level,
                structlog.processors.TimeStamper(fmt="iso", utc=True, key="at"),
                renderer,
            ],
            wrapper_class=structlog.make_filtering_bound_logger(self.level),
        )
        return cast("Logger", wrapped)


class JsonRows:
    """Render what else is said on stderr as rows of JSON, for who reads those."""

    def entry(self, head: Line, tail: Line = ()) -> Shown:
        """Return *head* and *tail* in one row."""
        return self.whole([*head, *tail])

    def whole(self, line: Line) -> Shown:
        """Return *line* in one row."""
        message = "".join(span.text for span in line)
        at = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        row = {"event": "notice", "message": message, "level": "warning", "at": at}
        return Shown(shown_json(json.dumps(row, ensure_ascii=False)) + "\n")


class _Rows:
    """Where structlog leaves what it rendered; harmless only from here on."""

    def __init__(self, write: Write, show: Callable[[str], Shown]) -> None:
        self._write = write
        self._show = show

    def debug(self, row: str) -> None:
        self._write(Shown(self._show(row) + "\n"))

    info = warning = error = debug


def _in_words(_logger: object, _name: str, event: Any) -> str:
    """Render *event* for people: when, how bad, what, then the fields."""
    at, level, what = event.pop("at"), event.pop("level"), event.pop("event")
    fields = " ".join(f"{name}={_value(value)}" for name, value in event.items())
    return f"{at} {level:<7} {what} {fields}"


def _value(value: object) -> str:
    text = str(value)
    return text if text and not set(text) & set(' ="\n\r\t') else repr(text)
