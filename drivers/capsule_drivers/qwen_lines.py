"""The stream-json lines of Qwen Code, as values. Its dialect is Claude Code's, but for the numbers."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from capsule_drivers.token_counts import count_of

Number = object
"""A count as it was written, which may be none: a bad one must not cost the line it stands in."""


class Tokens(Struct, frozen=True, gc=False):
    """What calls used. Cached input is counted inside `input_tokens`."""

    input_tokens: Number = None
    output_tokens: Number = None
    cache_read_input_tokens: Number = None
    total_tokens: Number = None

    @property
    def whole_output(self) -> int | None:
        """Return the output with the thoughts, which Google's API counts outside, in the total."""
        output, total = count_of(self.output_tokens), count_of(self.total_tokens)
        whole = count_of(self.input_tokens)
        if output is None or total is None or whole is None:
            return output
        return max(output, total - whole)

    @property
    def is_anything(self) -> bool:
        """Tell whether a call is counted here: of a block that is not the last, none is."""
        return bool(self.input_tokens or self.output_tokens)


class Block(Struct, frozen=True):
    """A part of a message: words, a thought, a call, or what a call gave."""

    type: str = ""
    text: str = ""
    thinking: str = ""
    id: str = ""
    name: str = ""
    input: object = None
    tool_use_id: str = ""
    content: object = None
    is_error: bool = False


class Answer(Struct, frozen=True):
    """A message, whole or as it begins."""

    id: str = ""
    model: str = ""
    content: list[Block] | str = ""
    usage: Tokens | None = None

    @property
    def blocks(self) -> list[Block]:
        """Return its parts; mere words are none."""
        return [] if isinstance(self.content, str) else self.content


class Delta(Struct, frozen=True, gc=False):
    type: str = ""
    text: str = ""
    thinking: str = ""


class ModelEvent(Struct, frozen=True):
    """An event inside a model's answer, told apart by `type`."""

    type: str = ""
    delta: Delta | None = None
    message: Answer | None = None


class StreamEvent(Struct, frozen=True, tag="stream_event"):
    event: ModelEvent = ModelEvent()
    parent_tool_use_id: str | None = None
    uuid: str | None = None


class AssistantLine(Struct, frozen=True, tag="assistant"):
    message: Answer = Answer()
    parent_tool_use_id: str | None = None
    session_id: str = ""
    uuid: str | None = None


class UserLine(Struct, frozen=True, tag="user"):
    message: Answer = Answer()
    parent_tool_use_id: str | None = None
    uuid: str | None = None


class Again(Struct, frozen=True, rename="camel"):
    """A call of the model that is tried again."""

    reason: object = None
    attempt: Number = None
    max_retries: Number = None
    delay_ms: Number = None


class SystemLine(Struct, frozen=True, tag="system"):
    """News of the harness. The `uuid` of `init` is that of the session, the same in each turn."""

    subtype: str = ""
    session_id: str = ""
    model: str = ""
    data: Again | None = None
    uuid: str | None = None


class Trouble(Struct, frozen=True, gc=False):
    message: str = ""


class Result(Struct, frozen=True, tag="result"):
    """The end of a turn. `usage` is that of the whole session, hidden calls included."""

    subtype: str = ""
    is_error: bool = False
    result: str | None = None
    usage: Tokens | None = None
    error: Trouble | None = None
    uuid: str | None = None


class Question(Struct, frozen=True):
    subtype: str = ""
    tool_name: str = ""
    input: object = None


class ControlRequest(Struct, frozen=True, tag="control_request"):
    request_id: str = ""
    request: Question = Question()


class Told(Struct, frozen=True):
    subtype: str = ""
    request_id: str = ""
    error: object = None


class ControlResponse(Struct, frozen=True, tag="control_response"):
    response: Told = Told()


class ControlCancel(Struct, frozen=True, tag="control_cancel_request", gc=False): ...


Line = (
    StreamEvent
    | AssistantLine
    | UserLine
    | SystemLine
    | Result
    | ControlRequest
    | ControlResponse
    | ControlCancel
)
"""Every line that is known."""

decode_line = msgspec.json.Decoder(Line).decode
