"""The lines that pi prints in its modes `rpc` and `json`, as values."""

from __future__ import annotations

from typing import cast

import msgspec
from msgspec import Struct

Whole = int | None
STOPPED_BY_PROVIDER = "An unknown error occurred"
"""What pi says when a whole answer ended in a refusal or a filter of the provider."""


class Cost(Struct, frozen=True, gc=False):
    """Dollars, as pi counts them."""

    total: float | None = None


class Spent(Struct, frozen=True, gc=False):
    """What one model call used; cached input stands beside `input`."""

    input: Whole = None
    output: Whole = None
    cacheRead: Whole = None
    cacheWrite: Whole = None
    cost: Cost | None = None


class Block(Struct, frozen=True):
    """A part of a message."""

    type: str = ""
    text: str = ""
    thinking: str = ""
    id: str = ""
    name: str = ""
    arguments: object = None


class Stamp(Struct, frozen=True, rename="camel"):
    """What tells a message from all others."""

    provider: str = ""
    response_id: str = ""
    timestamp: int | float | None = None

    @property
    def moment(self) -> float | str | None:
        """Return what is the same each time that the message is told, and of no other's."""
        return self.response_id or None if self.timestamp is None else self.timestamp

    @property
    def name(self) -> str | None:
        """Return what the provider names the answer, else what we do."""
        return self.response_id or self.own_name

    @property
    def own_name(self) -> str | None:
        """Return a name that no other answer has."""
        if self.timestamp is None:
            return None
        return f"{self.response_id or self.provider}-{self.timestamp}"


class PiMessage(Stamp, frozen=True, rename="camel"):
    """A message of the conversation, of whatever role."""

    role: str = ""
    content: msgspec.Raw = msgspec.Raw(b"[]")
    model: str = ""
    usage: Spent | None = None
    stop_reason: str = ""
    error_message: str = ""

    @property
    def model_name(self) -> str:
        """Return the model as `provider:id`."""
        return f"{self.provider or 'unknown'}:{self.model or 'unknown'}"

    @property
    def blocks(self) -> list[Block]:
        """Return the parts of an answer.

        Raises:
            msgspec.DecodeError: it has none that can be read.
        """
        return _blocks.decode(self.content)

    @property
    def text(self) -> str:
        """Return the words of an answer; a user's message may be no list of parts.

        Raises:
            msgspec.DecodeError: it cannot be read.
        """
        if bytes(self.content).startswith(b'"'):
            return msgspec.json.decode(self.content, type=str)
        return "".join(block.text for block in self.blocks if block.type == "text")


class Change(Struct, frozen=True, gc=False):
    """What a `message_update` adds."""

    type: str = ""
    delta: str = ""


class Model(Struct, frozen=True, gc=False):
    id: str = ""
    provider: str = ""


class State(Struct, frozen=True, rename="camel"):
    """What `get_state` is answered."""

    session_id: str = ""
    model: Model | None = None
    is_streaming: bool = True
    is_compacting: bool = False


class PiSession(Struct, frozen=True, tag="session", gc=False):
    id: str = ""


class Update(Struct, frozen=True, tag="message_update", rename="camel"):
    assistant_message_event: Change = Change()
    message: msgspec.Raw = msgspec.Raw(b"{}")
    """The message so far; nothing is read of it once it is known which it is."""


class MessageEnd(Struct, frozen=True, tag="message_end"):
    message: PiMessage = PiMessage()


class ToolStart(Struct, frozen=True, tag="tool_execution_start", rename="camel"):
    tool_call_id: str = ""
    tool_name: str = ""
    args: object = None


class ToolEnd(Struct, frozen=True, tag="tool_execution_end", rename="camel"):
    tool_call_id: str = ""
    tool_name: str = ""
    result: object = None
    is_error: bool = False


class AgentStart(Struct, frozen=True, tag="agent_start", gc=False): ...


class AgentEnd(Struct, frozen=True, tag="agent_end"):
    messages: list[msgspec.Raw] = []


class RetryStart(Struct, frozen=True, tag="auto_retry_start", rename="camel", gc=False):
    attempt: int = 0
    max_attempts: int | None = None
    delay_ms: float | None = None
    error_message: str = ""


class RetryEnd(Struct, frozen=True, tag="auto_retry_end", rename="camel", gc=False):
    success: bool = False
    final_error: str = ""


class CompactionEnd(Struct, frozen=True, tag="compaction_end", rename="camel"):
    will_retry: bool = False
    result: object = None


class Response(Struct, frozen=True, tag="response"):
    id: str = ""
    command: str = ""
    success: bool = True
    error: str = ""
    data: msgspec.Raw = msgspec.Raw(b"{}")

    @property
    def state(self) -> State:
        """Return what `get_state` told.

        Raises:
            msgspec.DecodeError: it cannot be read.
        """
        return msgspec.json.decode(self.data, type=State)


class Dialog(Struct, frozen=True, tag="extension_ui_request", gc=False):
    id: str = ""
    method: str = ""


class TurnStart(Struct, frozen=True, tag="turn_start", gc=False): ...


class TurnStop(Struct, frozen=True, tag="turn_end"):
    message: PiMessage = PiMessage()


class MessageStart(Struct, frozen=True, tag="message_start", gc=False): ...


class ToolUpdate(Struct, frozen=True, tag="tool_execution_update", gc=False): ...


class QueueUpdate(Struct, frozen=True, tag="queue_update", gc=False): ...


class CompactionStart(Struct, frozen=True, tag="compaction_start", gc=False): ...


Line = (
    PiSession
    | Update
    | MessageEnd
    | ToolStart
    | ToolEnd
    | AgentStart
    | AgentEnd
    | RetryStart
    | RetryEnd
    | CompactionEnd
    | Response
    | Dialog
    | TurnStart
    | TurnStop
    | MessageStart
    | ToolUpdate
    | QueueUpdate
    | CompactionStart
)
"""Every line that is known."""

decode_line = msgspec.json.Decoder(Line).decode
decode_stamp = msgspec.json.Decoder(Stamp).decode
decode_message = msgspec.json.Decoder(PiMessage).decode
_blocks = msgspec.json.Decoder(list[Block])


def shown_result(result: object) -> object:
    """Return what a tool gave as one text, if it is nothing but texts."""
    if not isinstance(result, dict):
        return result
    content = cast("dict[str, object]", result).get("content")
    if not isinstance(content, list):
        return cast("object", result)
    texts = list[str]()
    for part in cast("list[object]", content):
        fields = cast("dict[str, object]", part) if isinstance(part, dict) else {}
        text = fields.get("text")
        if fields.get("type") != "text" or not isinstance(text, str):
            return cast("object", content)
        texts.append(text)
    return "".join(texts)
