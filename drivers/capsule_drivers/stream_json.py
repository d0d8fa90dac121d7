"""The lines of Anthropic's stream-json, as values: what Claude Code prints, and those who copied it.

Fields that nobody needs are skipped, and every field may be missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from msgspec import UNSET, Struct, UnsetType

from capsule_drivers.json_text import decoded

Number = object
"""A count as it was written, which may be none: a bad one must not cost the line it stands in."""


class Hour(Struct, frozen=True, gc=False):
    """How long what was written to the cache is kept."""

    ephemeral_1h_input_tokens: Number = None


class Details(Struct, frozen=True, gc=False):
    """What the output was made of."""

    thinking_tokens: Number = None


class Tokens(Struct, frozen=True, gc=False):
    """What an answer used: cached input stands beside `input_tokens`."""

    input_tokens: Number = None
    output_tokens: Number = None
    cache_creation_input_tokens: Number = None
    cache_read_input_tokens: Number = None
    cache_creation: Hour | None = None
    output_tokens_details: Details | None = None


class Delta(Struct, frozen=True, gc=False):
    """A fragment of a block, or, in `message_delta`, how the answer ended."""

    type: str | None = None
    text: str | None = None
    thinking: str | None = None
    stop_reason: str | None = None


class Block(Struct, frozen=True):
    """A part of a message: words, a thought, a call of a tool, or what one gave."""

    type: str = ""
    text: str | None = None
    thinking: str | None = None
    id: str | None = None
    name: str | None = None
    input: object = None
    tool_use_id: str | None = None
    content: object = None
    is_error: bool | None = None


class Answer(Struct, frozen=True):
    """A message of the model or of the user, whole or as it begins."""

    id: str | None = None
    model: str | None = None
    content: list[Block] | str = ""
    usage: Tokens | None = None

    @property
    def blocks(self) -> Sequence[Block]:
        """Return its parts; words alone have none."""
        return () if isinstance(self.content, str) else self.content


class MessageStart(Struct, frozen=True, tag="message_start"):
    message: Answer = Answer()


class MessageDelta(Struct, frozen=True, tag="message_delta", gc=False):
    delta: Delta = Delta()
    usage: Tokens | None = None


class BlockDelta(Struct, frozen=True, tag="content_block_delta", gc=False):
    delta: Delta = Delta()


class BlockStart(Struct, frozen=True, tag="content_block_start", gc=False): ...


class BlockStop(Struct, frozen=True, tag="content_block_stop", gc=False): ...


class MessageStop(Struct, frozen=True, tag="message_stop", gc=False): ...


class Ping(Struct, frozen=True, tag="ping", gc=False): ...


ApiEvent = MessageStart | MessageDelta | BlockDelta | BlockStart | BlockStop | MessageStop | Ping


class StreamEvent(Struct, frozen=True, tag="stream_event"):
    """An event of the model's answer, as the API sent it."""

    event: ApiEvent
    parent_tool_use_id: str | None = None
    api_message_id: str | None = None
    uuid: str | None = None


class AssistantLine(Struct, frozen=True, tag="assistant"):
    """A whole block of the model's answer, or what the harness says in its place."""

    message: Answer = Answer()
    parent_tool_use_id: str | None = None
    error: str | None = None
    session_id: str | None = None
    taken: list[str] | None = msgspec.field(name="user_message_uuids", default=None)
    uuid: str | None = None


class UserLine(Struct, frozen=True, tag="user"):
    """What tools gave, or words that went into the conversation."""

    message: Answer = Answer()
    parent_tool_use_id: str | None = None
    uuid: str | None = None
    is_replay: bool = msgspec.field(name="isReplay", default=False)


class SystemLine(Struct, frozen=True, tag="system"):
    """News of the harness itself, told apart by `subtype`."""

    subtype: str = ""
    session_id: str | None = None
    model: str | None = None
    api_key_source: str | None = msgspec.field(name="apiKeySource", default=None)
    attempt: int | None = None
    max_retries: int | None = None
    retry_delay_ms: float | None = None
    error_status: int | None = None
    error: str | None = None
    content: object = None
    taken: list[str] | None = msgspec.field(name="user_message_uuids", default=None)
    uuid: str | None = None


class Asking(Struct, frozen=True):
    """What the harness wants to know; `can_use_tool` is the common case."""

    subtype: str = ""
    tool_name: str = ""
    input: object = None


class ControlRequest(Struct, frozen=True, tag="control_request"):
    """A question of the harness, which waits for the answer."""

    request_id: str = ""
    request: Asking = Asking()
    uuid: str | None = None


class Told(Struct, frozen=True):
    subtype: str = ""
    request_id: str | None = None
    error: str | None = None


class ControlResponse(Struct, frozen=True, tag="control_response"):
    """The answer to a question of ours, or an echo of one we gave."""

    response: Told = Told()
    uuid: str | None = None


class ModelUsage(Struct, frozen=True, rename="camel", gc=False):
    """What one model used in a turn, hidden calls and sub-agents included."""

    input_tokens: Number = None
    output_tokens: Number = None
    cache_read_input_tokens: Number = None
    cache_creation_input_tokens: Number = None
    cache_creation_ephemeral_1h_input_tokens: Number = msgspec.field(
        name="cacheCreationEphemeral1hInputTokens", default=None
    )
    cost_usd: Number = msgspec.field(name="costUSD", default=None)


class Result(Struct, frozen=True, tag="result"):
    """The end of a turn."""

    subtype: str = ""
    is_error: bool | None = None
    terminal_reason: str | None = None
    stop_reason: str | None = None
    api_error_status: int | None = None
    api_error: str | None = None
    result: str | None = None
    errors: list[str] | None = None
    structured_output: object | UnsetType = UNSET
    usage: Tokens | None = None
    since: Mapping[str, ModelUsage] | None = msgspec.field(
        name="model_usage_since_last_result", default=None
    )
    taken: list[str] | None = msgspec.field(name="user_message_uuids", default=None)
    uuid: str | None = None


class _Nothing(Struct, frozen=True, gc=False):
    """A line that tells nothing here; `uuid` is the name that nearly every line has."""

    uuid: str | None = None


class Lifecycle(Struct, frozen=True, tag="command_lifecycle", gc=False):
    """What became of the words with an id of ours."""

    command_uuid: str = ""
    state: str = ""
    uuid: str | None = None


class KeepAlive(_Nothing, frozen=True, tag="keep_alive", gc=False): ...


class ToolProgress(_Nothing, frozen=True, tag="tool_progress", gc=False): ...


class RateLimit(_Nothing, frozen=True, tag="rate_limit_event", gc=False): ...


class ControlCancel(_Nothing, frozen=True, tag="control_cancel_request", gc=False): ...


Line = (
    StreamEvent
    | AssistantLine
    | UserLine
    | SystemLine
    | ControlRequest
    | ControlResponse
    | Result
    | Lifecycle
    | KeepAlive
    | ToolProgress
    | RateLimit
    | ControlCancel
)
"""Every line that is known."""

_lines = msgspec.json.Decoder(Line)


def read_block(lines: bytes) -> list[Line] | None:
    """Return the values of *lines* if each line is one; None when a line needs care."""
    try:
        found = _lines.decode_lines(lines)
    except (msgspec.DecodeError, RecursionError):
        return None
    # decode_lines sees values, not lines. Between two lines that hold one object each stands
    # "}\n{", and inside an object it cannot.
    return found if len(found) == lines.count(b"\n") == lines.count(b"}\n{") + 1 else None


def read_line(line: bytes) -> Line:
    """Return the value of *line*; half a character becomes U+FFFD.

    Raises:
        msgspec.DecodeError, RecursionError: it is none that is known.
    """
    return decoded(line, _lines.decode)
