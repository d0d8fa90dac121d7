"""What a harness says, as values. On the wire: one JSON object a line, tagged by `type`.

A field that was not reported is `None`, and `None` is not zero.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType


class FailureKind(StrEnum):
    """Why a turn failed, as far as the harness can tell."""

    AUTH = "auth"
    QUOTA = "quota"
    RATE_LIMIT = "rate-limit"
    MAX_TURNS = "max-turns"
    DECLINED = "declined"
    PERMISSION = "permission"
    CONTEXT_LENGTH = "context-length"
    TRUNCATED = "truncated"
    SESSION_GONE = "session-gone"
    INDETERMINATE = "indeterminate"
    HARNESS_ERROR = "harness-error"
    OTHER = "other"


# gc=False: events hold only text and numbers, so they can be in no reference cycle.
class Session(Struct, frozen=True, tag_field="type", tag="session", omit_defaults=True, gc=False):
    """The harness's own conversation, by which it can be resumed."""

    id: str
    model: str | None = None
    auth: str | None = None


class TextDelta(Struct, frozen=True, tag_field="type", tag="text-delta", gc=False):
    """A fragment of the answer, as it is streamed."""

    text: str


class ThinkingDelta(Struct, frozen=True, tag_field="type", tag="thinking-delta", gc=False):
    """A fragment of the model's reasoning, as it is streamed."""

    text: str


class Text(Struct, frozen=True, tag_field="type", tag="text", omit_defaults=True, gc=False):
    """A complete text. It replaces what was streamed; it is never added to it."""

    text: str
    answer: str | None = None


class Thinking(Struct, frozen=True, tag_field="type", tag="thinking", omit_defaults=True, gc=False):
    """A complete reasoning text. It replaces what was streamed."""

    text: str
    answer: str | None = None


class ToolCall(Struct, frozen=True, tag_field="type", tag="tool-call", omit_defaults=True):
    """The model asks for a tool; *input* is any JSON value."""

    id: str
    name: str
    input: object = None
    answer: str | None = None


class ToolResult(Struct, frozen=True, tag_field="type", tag="tool-result", omit_defaults=True):
    """What a tool call gave; *content* is any JSON value."""

    id: str
    name: str | None = None
    content: object = None
    is_error: bool | None = None
    exit_code: int | None = None


Count = Annotated[int, Meta(ge=0, le=2**40)]
"""How many tokens. No model call can have used less than none, or a million millions."""


class Usage(Struct, frozen=True, tag_field="type", tag="usage", omit_defaults=True, gc=False):
    """What one model call used (`scope="call"`), or all so far (`scope="total"`).

    Cached input is counted beside `input_tokens`, reasoning inside `output_tokens`.
    """

    model: str
    input_tokens: Count | None = None
    output_tokens: Count | None = None
    cache_read_tokens: Count | None = None
    cache_write_tokens: Count | None = None
    cache_write_1h_tokens: Count | None = None
    reasoning_tokens: Count | None = None
    cost_usd: float | None = None
    call_id: str | None = None
    scope: Literal["call", "total"] = "call"


class Retrying(Struct, frozen=True, tag_field="type", tag="retrying", omit_defaults=True, gc=False):
    """The harness waits before it tries a model call again; *delay* is in seconds."""

    attempt: int
    reason: str
    max: int | None = None
    delay: float | None = None


class Permission(Struct, frozen=True, tag_field="type", tag="permission", omit_defaults=True):
    """The harness asks whether *tool* may be used."""

    id: str
    tool: str
    input: object = None
    options: list[str] | None = None


class Suspend(Struct, frozen=True, tag_field="type", tag="suspend", omit_defaults=True):
    """The harness asks to park until a person (or, by *kind*, a system) answers."""

    id: str
    reason: str
    input_schema: object
    kind: Literal["signal"] | None = None
    call_id: str | None = None


class Sleep(Struct, frozen=True, tag_field="type", tag="sleep", omit_defaults=True, gc=False):
    """The harness asks to park until the instant *wake_at* (RFC 3339, with an offset)."""

    id: str
    wake_at: str
    call_id: str | None = None


class Dispatch(Struct, frozen=True, tag_field="type", tag="dispatch", omit_defaults=True):
    """The harness asks for a job of *kind*."""

    id: str
    kind: str
    input: object = None


class Handoff(Struct, frozen=True, tag_field="type", tag="handoff", gc=False):
    """The harness asks that the context's next run be the capsule *to*."""

    id: str
    to: str


class Activity(Struct, frozen=True, tag_field="type", tag="activity", gc=False):
    """One live line about what goes on; never part of the answer."""

    text: str


class Steered(Struct, frozen=True, tag_field="type", tag="steered", gc=False):
    """The harness has taken the words it was steered with by *id*: they are in its conversation."""

    id: str


class TurnEnd(Struct, frozen=True, tag_field="type", tag="turn-end", omit_defaults=True):
    """The harness is done; *data* is a JSON value for callers that asked for structure."""

    result: str
    data: object | UnsetType = UNSET


class TurnFailed(Struct, frozen=True, tag_field="type", tag="turn-failed", gc=False):
    """The harness gives up. `declined` as the very first event refuses the task unstarted."""

    kind: FailureKind
    message: str


class Note(Struct, frozen=True, tag_field="type", tag="note", gc=False):
    """Something worth a line in the log and nothing more, such as a line nobody understood."""

    text: str


Event = (
    Session
    | TextDelta
    | ThinkingDelta
    | Text
    | Thinking
    | ToolCall
    | ToolResult
    | Usage
    | Retrying
    | Permission
    | Suspend
    | Sleep
    | Dispatch
    | Handoff
    | Activity
    | Steered
    | TurnEnd
    | TurnFailed
    | Note
)
"""Every event a driver may produce."""

Terminal = TurnEnd | TurnFailed
"""The events that end a turn. Every attempt has at most one."""

Request = Permission | Suspend | Sleep | Dispatch | Handoff
"""The events that wait for an answer."""
