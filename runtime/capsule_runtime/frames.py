"""What a client sees, as values. One flat JSON object a line.

`seq` numbers the run's log. `prev` is the `seq` of the run's previous frame (0 for the first), so
a client can prove that it missed none. `at` is RFC 3339, UTC.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

FrameState = Literal["working", "completed", "canceled", "failed"]


class StatusFrame(
    Struct, frozen=True, tag_field="type", tag="status", omit_defaults=True, gc=False
):
    """Where the run stands. Exactly one per run has `final` true: it is the last frame."""

    seq: int
    prev: int
    at: str
    run: str
    state: FrameState
    message: str
    final: bool
    response: str | None = None
    context: str | None = None


class TextFrame(Struct, frozen=True, tag_field="type", tag="text", gc=False):
    """A piece of the answer. An empty one with `final` true ends what was streamed."""

    seq: int
    prev: int
    at: str
    run: str
    text: str
    final: bool


class ThinkingFrame(Struct, frozen=True, tag_field="type", tag="thinking", gc=False):
    """A piece of the model's reasoning. `final` is always false."""

    seq: int
    prev: int
    at: str
    run: str
    text: str
    final: bool = False


class ArtifactFrame(Struct, frozen=True, tag_field="type", tag="artifact"):
    """One finished tool call. Unknown values are null; `duration_ms` is the runtime's measure."""

    seq: int
    prev: int
    at: str
    run: str
    tool_name: str
    tool_call_id: str
    content: object
    is_error: bool
    duration_ms: int | None
    exit_code: int | None
    truncated: bool


Frame = StatusFrame | TextFrame | ThinkingFrame | ArtifactFrame
"""Every frame a client may see."""
